// Reads prompts, messages, and the items of a response's input.
#include "runtime/serve/ApiFields.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <ranges>

#include <nlohmann/json.hpp>

namespace tessera::serve {

Problem readTokens(std::string_view name, const JsonValue::Array &values,
                   PromptInput &to) {
  std::vector<int32_t> tokens;
  for (const JsonValue &value : values) {
    int64_t token = 0;
    if (!getWhole(value, token) || token < 0 || token > INT32_MAX)
      return problem(name,
                     "a token of a prompt must be a non-negative integer");
    tokens.push_back(int32_t(token));
  }
  to = std::move(tokens);
  return std::nullopt;
}

namespace {

/// `hasTools`: the endpoint has the role tool.
Problem readRole(std::string_view name, const JsonValue &message, bool hasTools,
                 std::string &to) {
  std::string_view role;
  if (!message["role"].get(role))
    return problem(name, "a message must have a role");
  if (role == "developer") // OpenAI's newer name of it
    role = "system";
  if (role != "system" && role != "user" && role != "assistant" &&
      ((role != "tool" && role != "function") || !hasTools))
    return problem(name,
                   "the role of a message must be system, developer, "
                   "user{} assistant, got: {}",
                   hasTools ? ", tool, function or" : " or", quote(role));
  to = role;
  return std::nullopt;
}

/// A string, or parts of these types.
Problem readContent(std::string_view name, const JsonValue &content,
                    std::span<const std::string_view> types, std::string &to) {
  std::string_view text, type;
  if (content.get(text)) {
    to = text;
    return std::nullopt;
  }
  if (!content.isArray())
    return problem(name, "a message's content must be a string or a list "
                         "of parts");
  for (const JsonValue &part : content.elements()) {
    if (!part["type"].get(type) || std::ranges::count(types, type) == 0 ||
        !part["text"].get(text))
      return problem(name,
                     "a part of a message must be {{\"type\": \"{}\", "
                     "\"text\": ...}}; this model accepts no images, audio or "
                     "files",
                     types.front());
    to += text;
  }
  return std::nullopt;
}

/// Any other member of a message is an error, so that none is ignored.
Problem checkMessage(std::string_view name, const JsonValue &message,
                     std::span<const std::string_view> known) {
  std::string_view text;
  for (const JsonValue::Member &member : message.members())
    if (std::ranges::count(known, member.name) == 0 && !member.value.isNull())
      return problem(name, "the field {} of a message is not supported",
                     quote(member.name));
    else if (member.name != "content" && member.name != "tool_calls" &&
             member.name != "function_call" && !member.value.isNull() &&
             !member.value.get(text))
      return problem(name, "the {} of a message must be a string", member.name);
  return std::nullopt;
}

/// Reads the members `known`, with contents of the `types`.
Problem readMessage(std::string_view name, const JsonValue &message,
                    std::span<const std::string_view> known,
                    std::span<const std::string_view> types, OlderCalls &calls,
                    std::vector<ChatMessage> &to) {
  ChatMessage read;
  bool hasTools = std::ranges::count(known, "tool_calls") != 0;
  if (Problem found = readRole(name, message, hasTools, read.role))
    return found;
  if (Problem found = checkMessage(name, message, known))
    return found;
  if (Problem found = readToolParts(name, message, read))
    return found;
  if (Problem found = readOlderCall(name, message, to.size(), calls, read))
    return found;
  std::string_view reasoning;
  if (message["reasoning_content"].get(reasoning)) {
    if (read.role != "assistant")
      return problem(name, "only an assistant's message has reasoning_content");
    read.reasoning = reasoning;
  }
  read.hasContent = read.calls.empty() || !message["content"].isNull();
  if (read.hasContent)
    if (Problem found =
            readContent(name, message["content"], types, read.content))
      return found;
  to.push_back(std::move(read));
  return std::nullopt;
}

//===--- what is kept of them ---------------------------------------------===//

using Json = nlohmann::ordered_json;

Json jsonAgain(const JsonValue &value) { return Json::parse(jsonOf(value)); }

/// In the format of GET /v1/chat/completions/ID/messages.
InputItem keptMessage(const JsonValue &message, const ChatMessage &read) {
  const JsonValue &content = message["content"];
  Json kept = {
      {"role", jsonAgain(message["role"])},
      {"content", content.isNull() ? Json() : Json(read.content)},
      {"name", jsonAgain(message["name"])},
      {"content_parts", content.isArray() ? jsonAgain(content) : Json()}};
  for (const char *name :
       {"tool_calls", "tool_call_id", "function_call", "reasoning_content"})
    if (!message[name].isNull())
      kept[name] = jsonAgain(message[name]);
  return {"", kept.dump()};
}

/// In the format of GET /v1/responses/ID/input_items.
InputItem keptItem(std::string_view role, const JsonValue &content) {
  Json parts = Json::array();
  auto add = [&](std::string_view text) {
    if (role == "assistant")
      parts.push_back({{"type", "output_text"},
                       {"text", text},
                       {"annotations", Json::array()}});
    else
      parts.push_back({{"type", "input_text"}, {"text", text}});
  };
  std::string_view text;
  if (content.get(text))
    add(text);
  for (const JsonValue &each : content.elements())
    if (each["text"].get(text))
      add(text);
  return {"", Json{{"type", "message"},
                   {"status", "completed"},
                   {"role", role},
                   {"content", std::move(parts)}}
                  .dump()};
}

void keep(ApiRequest &request, InputItem item) {
  if (request.store)
    request.items.push_back(std::move(item));
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
    return problem(field.name,
                   "prompt must be a string, strings, tokens, or lists "
                   "of tokens, and not empty");
  double token = 0;
  if (parts.front().get(token))
    return readTokens(field.name, parts, request.prompts.emplace_back());
  if (int64_t(parts.size()) > kMaxChoices)
    return problem(field.name, "there may be at most {} prompts", kMaxChoices);
  for (const JsonValue &part : parts) {
    PromptInput &prompt = request.prompts.emplace_back();
    if (part.get(text))
      prompt = std::string(text);
    else if (!part.isArray())
      return problem(field.name,
                     "a prompt must be a string or a list of tokens");
    else if (Problem found = readTokens(field.name, part.elements(), prompt))
      return found;
  }
  return std::nullopt;
}

Problem readMessages(const Field &field, const JsonValue &value,
                     ApiRequest &request) {
  static constexpr std::string_view types[] = {"text"};
  static constexpr std::string_view known[] = {
      "role",          "content",          "name", "tool_calls", "tool_call_id",
      "function_call", "reasoning_content"};
  if (value.elements().empty())
    return problem(field.name,
                   "messages must be a list of at least one message");
  OlderCalls calls;
  for (const JsonValue &each : value.elements()) {
    if (Problem found = readMessage(field.name, each, known, types, calls,
                                    request.messages))
      return found;
    if (request.store)
      request.items.push_back(keptMessage(each, request.messages.back()));
  }
  return std::nullopt;
}

//===--- items of responses -----------------------------------------------===//

namespace {

/// A message of the assistant whose parts are items that follow.
void openAssistant(std::vector<ChatMessage> &messages) {
  messages.push_back({"assistant", ""});
  messages.back().hasContent = false;
}

/// Whether the last message has only reasoning so far.
bool awaitsParts(const std::vector<ChatMessage> &messages) {
  return !messages.empty() && messages.back().role == "assistant" &&
         !messages.back().hasContent && messages.back().calls.empty();
}

/// Reasoning of the next message or call. A summary without the text, which
/// other servers return, says nothing to a template.
Problem readReasoningItem(std::string_view name, const JsonValue &item,
                          ApiRequest &request) {
  static constexpr std::string_view types[] = {"reasoning_text"};
  static constexpr std::string_view known[] = {"type", "id", "status",
                                               "summary", "content"};
  if (Problem found = checkMembers(name, "an item", item, known))
    return found;
  if (!item["summary"].isNull() && !item["summary"].isArray())
    return problem(name, "the summary of reasoning must be a list");
  std::string text;
  const JsonValue &content = item["content"];
  if (!content.isNull() && !content.isArray())
    return problem(name, "the content of reasoning must be a list of parts");
  if (!content.isNull())
    if (Problem found = readContent(name, content, types, text))
      return found;
  keep(request,
       {"", Json{{"type", "reasoning"},
                 {"status", "completed"},
                 {"summary", Json::array()},
                 {"content", {{{"type", "reasoning_text"}, {"text", text}}}}}
                .dump()});
  if (text.empty())
    return std::nullopt;
  if (!awaitsParts(request.messages))
    openAssistant(request.messages);
  std::string &reasoning = request.messages.back().reasoning;
  reasoning += (reasoning.empty() ? "" : "\n") + text;
  return std::nullopt;
}

/// Adds calls to the preceding message of the assistant.
Problem readCallItem(std::string_view name, const JsonValue &item, size_t &left,
                     ApiRequest &request) {
  static constexpr std::string_view known[] = {"type",    "id",   "status",
                                               "call_id", "name", "arguments"};
  if (Problem found = checkMembers(name, "an item", item, known))
    return found;
  std::vector<ToolCall> calls;
  if (Problem found = readCall(name, item["call_id"], item, left, calls))
    return found;
  const ToolCall &call = calls.front();
  keep(request, {"", Json{{"type", "function_call"},
                          {"status", "completed"},
                          {"call_id", call.id},
                          {"name", call.name},
                          {"arguments", call.arguments}}
                         .dump()});
  std::vector<ChatMessage> &messages = request.messages;
  if (messages.empty() || messages.back().role != "assistant")
    openAssistant(messages);
  messages.back().calls.push_back(std::move(calls.front()));
  return std::nullopt;
}

Problem readCallOutput(std::string_view name, const JsonValue &item,
                       ApiRequest &request) {
  static constexpr std::string_view types[] = {"input_text", "output_text"};
  static constexpr std::string_view known[] = {"type", "id", "status",
                                               "call_id", "output"};
  if (Problem found = checkMembers(name, "an item", item, known))
    return found;
  ChatMessage read{"tool", ""};
  std::string_view id;
  if (!item["call_id"].get(id))
    return problem(name, "a function_call_output must have a call_id");
  read.callId = id;
  if (Problem found = readContent(name, item["output"], types, read.content))
    return found;
  keep(request, {"", Json{{"type", "function_call_output"},
                          {"status", "completed"},
                          {"call_id", id},
                          {"output", read.content}}
                         .dump()});
  request.messages.push_back(std::move(read));
  return std::nullopt;
}

/// The last message has the reasoning of the item before it.
void joinReasoning(std::vector<ChatMessage> &messages) {
  ChatMessage last = std::move(messages.back());
  messages.pop_back();
  if (last.role == "assistant" && awaitsParts(messages)) {
    last.reasoning = std::move(messages.back().reasoning);
    messages.pop_back();
  }
  messages.push_back(std::move(last));
}

Problem readMessageItem(std::string_view name, const JsonValue &item,
                        ApiRequest &request) {
  static constexpr std::string_view types[] = {"input_text", "output_text"};
  static constexpr std::string_view known[] = {"type", "role", "content", "id",
                                               "status"};
  OlderCalls none; // calls are items of their own type
  if (Problem found =
          readMessage(name, item, known, types, none, request.messages))
    return found;
  joinReasoning(request.messages);
  std::string_view role;
  item["role"].get(role);
  if (request.store)
    request.items.push_back(keptItem(role, item["content"]));
  return std::nullopt;
}

} // namespace

// Items of other types (references to items stored by OpenAI, …) are rejected
// by their type.
Problem readItems(std::string_view name, const JsonValue &value,
                  ApiRequest &request) {
  size_t left = kMaxCallValues;
  for (const JsonValue &each : value.elements()) {
    std::string_view type = "message";
    bool hasType = each["type"].isNull() || each["type"].get(type);
    Problem found;
    if (hasType && type == "message")
      found = readMessageItem(name, each, request);
    else if (hasType && type == "reasoning")
      found = readReasoningItem(name, each, request);
    else if (hasType && type == "function_call")
      found = readCallItem(name, each, left, request);
    else if (hasType && type == "function_call_output")
      found = readCallOutput(name, each, request);
    else
      found = problem(name,
                      "an item of the input must be a message, reasoning, a "
                      "function_call or a function_call_output, got: {}",
                      hasType ? quote(type) : "no string");
    if (found)
      return found;
  }
  // Of a response that was cut within its reasoning there is nothing else.
  for (ChatMessage &message : request.messages)
    message.hasContent |= message.calls.empty();
  return std::nullopt;
}

Problem readInput(const Field &field, const JsonValue &value,
                  ApiRequest &request) {
  std::string_view text;
  if (value.get(text)) {
    request.messages.push_back({"user", std::string(text)});
    keep(request, keptItem("user", value));
    return std::nullopt;
  }
  if (value.elements().empty())
    return problem(field.name,
                   "input must be a string, or a list of at least one item");
  return readItems(field.name, value, request);
}

} // namespace tessera::serve
