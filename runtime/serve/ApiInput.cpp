// Prompts, messages, and the items of a response's input.
#include "runtime/serve/ApiFields.h"
#include "runtime/support/Text.h"

#include <algorithm>

namespace tessera::serve {
namespace {

Problem readTokens(std::string_view name, const JsonValue::Array &values,
                   PromptInput &to) {
  std::vector<int32_t> tokens;
  for (const JsonValue &value : values) {
    int64_t token = 0;
    if (!getWhole(value, token) || token < 0 || token > INT32_MAX)
      return problem(name, "a token of a prompt must be a natural number");
    tokens.push_back(int32_t(token));
  }
  to = std::move(tokens);
  return std::nullopt;
}

/// `hasTools`: the endpoint knows the role tool.
Problem readRole(std::string_view name, const JsonValue &message, bool hasTools,
                 std::string &to) {
  std::string_view role;
  if (!message["role"].get(role))
    return problem(name, "a message must have a role");
  if (role == "developer") // OpenAI's newer word for it
    role = "system";
  if (role != "system" && role != "user" && role != "assistant" &&
      (role != "tool" || !hasTools))
    return problem(name,
                   "the role of a message must be system, developer, "
                   "user{} assistant, got: {}",
                   hasTools ? ", tool or" : " or", quote(role));
  to = role;
  return std::nullopt;
}

/// A text, or parts of these types.
Problem readContent(std::string_view name, const JsonValue &content,
                    std::span<const std::string_view> types, std::string &to) {
  std::string_view text, type;
  if (content.get(text)) {
    to = text;
    return std::nullopt;
  }
  if (!content.isArray())
    return problem(name, "a message's content must be a text or a list "
                         "of parts");
  for (const JsonValue &part : content.elements()) {
    if (!part["type"].get(type) || std::ranges::count(types, type) == 0 ||
        !part["text"].get(text))
      return problem(name,
                     "a part of a message must be {{\"type\": \"{}\", "
                     "\"text\": ...}}; this model reads no images, sounds or "
                     "files",
                     types.front());
    to += text;
  }
  return std::nullopt;
}

/// Everything else that a message has would be a wish that nobody hears.
Problem checkMembers(std::string_view name, const JsonValue &message,
                     std::span<const std::string_view> known) {
  std::string_view text;
  for (const JsonValue::Member &member : message.members())
    if (std::ranges::count(known, member.name) == 0 && !member.value.isNull())
      return problem(name, "the field {} of a message is not served",
                     quote(member.name));
    else if (member.name != "content" && member.name != "tool_calls" &&
             !member.value.isNull() && !member.value.get(text))
      return problem(name, "the {} of a message must be a text", member.name);
  return std::nullopt;
}

/// Whose call, or which calls.
Problem readToolParts(std::string_view name, const JsonValue &message,
                      ChatMessage &read) {
  std::string_view id;
  bool hasId = message["tool_call_id"].get(id);
  if (hasId != (read.role == "tool"))
    return problem(name, "a message of the role tool, and no other, must have "
                         "a tool_call_id");
  read.callId = id;
  const JsonValue &calls = message["tool_calls"];
  if (calls.isNull())
    return std::nullopt;
  if (read.role != "assistant")
    return problem(name, "only an assistant's message has tool_calls");
  return readCalls(name, calls, read.calls);
}

/// Of the members `known`, with contents of the `types`.
Problem readMessage(std::string_view name, const JsonValue &message,
                    std::span<const std::string_view> known,
                    std::span<const std::string_view> types,
                    std::vector<ChatMessage> &to) {
  ChatMessage &read = to.emplace_back();
  bool hasTools = std::ranges::count(known, "tool_calls") != 0;
  if (Problem found = readRole(name, message, hasTools, read.role))
    return found;
  if (Problem found = checkMembers(name, message, known))
    return found;
  if (Problem found = readToolParts(name, message, read))
    return found;
  read.hasContent = read.calls.empty() || !message["content"].isNull();
  if (!read.hasContent)
    return std::nullopt;
  return readContent(name, message["content"], types, read.content);
}

} // namespace

Problem readPrompt(const Field &field, const JsonValue &value,
                   ApiRequest &request) {
  std::string_view text;
  if (value.get(text)) {
    request.prompts.emplace_back(std::string(text));
    return std::nullopt;
  }
  const JsonValue::Array &parts = value.elements();
  if (parts.empty())
    return problem(field.name, "prompt must be a text, texts, tokens, or lists "
                               "of tokens, and not empty");
  double token = 0;
  if (parts.front().get(token))
    return readTokens(field.name, parts, request.prompts.emplace_back());
  if (int64_t(parts.size()) > kMaxChoices)
    return problem(field.name, "at most {} prompts are read at once",
                   kMaxChoices);
  for (const JsonValue &part : parts) {
    PromptInput &prompt = request.prompts.emplace_back();
    if (part.get(text))
      prompt = std::string(text);
    else if (!part.isArray())
      return problem(field.name, "a prompt must be a text or a list of tokens");
    else if (Problem found = readTokens(field.name, part.elements(), prompt))
      return found;
  }
  return std::nullopt;
}

Problem readMessages(const Field &field, const JsonValue &value,
                     ApiRequest &request) {
  static constexpr std::string_view types[] = {"text"};
  static constexpr std::string_view known[] = {"role", "content", "name",
                                               "tool_calls", "tool_call_id"};
  if (value.elements().empty())
    return problem(field.name,
                   "messages must be a list of at least one message");
  for (const JsonValue &each : value.elements()) {
    if (Problem found =
            readMessage(field.name, each, known, types, request.messages))
      return found;
  }
  return std::nullopt;
}

// Items of other types (calls of tools, reasoning, references to what OpenAI
// keeps) are refused by their type.
Problem readInput(const Field &field, const JsonValue &value,
                  ApiRequest &request) {
  static constexpr std::string_view types[] = {"input_text", "output_text"};
  static constexpr std::string_view known[] = {"type", "role", "content", "id",
                                               "status"};
  std::string_view text;
  if (value.get(text)) {
    request.messages.push_back({"user", std::string(text)});
    return std::nullopt;
  }
  if (value.elements().empty())
    return problem(field.name,
                   "input must be a text, or a list of at least one message");
  for (const JsonValue &each : value.elements()) {
    std::string_view type = "message";
    if (!each["type"].isNull() &&
        (!each["type"].get(type) || type != "message"))
      return problem(field.name,
                     "an item of the input must be a message, got: "
                     "{}",
                     quote(type));
    if (Problem found =
            readMessage(field.name, each, known, types, request.messages))
      return found;
  }
  return std::nullopt;
}

} // namespace tessera::serve
