// Reads the fields of Anthropic's Messages API: turns of content blocks, and
// what else has another form than in OpenAI's.
#include "runtime/serve/ApiFields.h"

#include <algorithm>

namespace tessera::serve {

/// A hint where a prefix ends that should be cached. Every prefix is.
Problem readCacheHint(std::string_view field, const JsonValue &value) {
  std::string_view text;
  bool good =
      value.isNull() || (value["type"].get(text) && text == "ephemeral");
  for (const JsonValue::Member &member : value.members())
    good = good && (member.name == "type" || member.value.isNull() ||
                    (member.name == "ttl" && member.value.get(text) &&
                     (text == "5m" || text == "1h")));
  if (good)
    return std::nullopt;
  return problem(field, "cache_control must be {{\"type\": \"ephemeral\"}}, "
                        "with a ttl of 5m or 1h");
}

namespace {

Problem checkBlock(std::string_view field, const JsonValue &block,
                   std::initializer_list<std::string_view> known) {
  std::string_view type;
  block["type"].get(type);
  return checkMembers(field, fmt::format("a block of type {}", type), block,
                      {known.begin(), known.size()});
}

/// Appends the text of a block, after the separator if there is any before it.
Problem readTextBlock(std::string_view field, const JsonValue &block,
                      std::string_view separator, std::string &to) {
  if (Problem found =
          checkBlock(field, block, {"type", "text", "cache_control"}))
    return found;
  if (Problem found = readCacheHint(field, block["cache_control"]))
    return found;
  std::string_view text;
  if (!block["text"].get(text))
    return problem(field, "a block of type text must have a text");
  if (!to.empty())
    to += separator;
  to += text;
  return std::nullopt;
}

Problem otherBlock(std::string_view field, const JsonValue &block,
                   std::string_view known) {
  std::string_view type;
  if (!block["type"].get(type))
    return problem(field, "a block must be an object with a type");
  return problem(field,
                 "a block of type {} is not supported here; it may be {}",
                 quote(type), known);
}

bool isOfType(const JsonValue &block, std::string_view wanted) {
  std::string_view type;
  return block["type"].get(type) && type == wanted;
}

/// A string, or blocks of type text.
Problem readBlocksOfText(std::string_view field, const JsonValue &value,
                         std::string &to) {
  std::string_view text;
  if (value.get(text)) {
    to = text;
    return std::nullopt;
  }
  if (!value.isArray())
    return problem(field, "{} must have a string or a list of blocks", field);
  for (const JsonValue &block : value.elements()) {
    if (!isOfType(block, "text"))
      return otherBlock(field, block, "text");
    if (Problem found = readTextBlock(field, block, "\n", to))
      return found;
  }
  return std::nullopt;
}

/// The result of a tool is a message of its own. Templates have no field for
/// `is_error`: the content says what went wrong.
Problem readToolResult(std::string_view field, const JsonValue &block,
                       std::vector<ChatMessage> &to) {
  if (Problem found = checkBlock(
          field, block,
          {"type", "tool_use_id", "content", "is_error", "cache_control"}))
    return found;
  if (Problem found = readCacheHint(field, block["cache_control"]))
    return found;
  std::string_view id;
  if (!block["tool_use_id"].get(id))
    return problem(field, "a tool_result must have a tool_use_id");
  bool ignored = false;
  if (!block["is_error"].isNull())
    if (Problem found = readBool("is_error", block["is_error"], ignored))
      return problem(field, "{}", found->message);
  ChatMessage &read = to.emplace_back();
  read.role = "tool";
  read.callId = id;
  return block["content"].isNull()
             ? std::nullopt
             : readBlocksOfText(field, block["content"], read.content);
}

/// Turns of one role that follow each other are one turn.
ChatMessage &openTurn(std::string_view role, std::vector<ChatMessage> &to) {
  if (to.empty() || to.back().role != role) {
    to.push_back({std::string(role), ""});
    to.back().hasContent = false;
  }
  return to.back();
}

Problem readUserBlock(std::string_view field, const JsonValue &block,
                      std::vector<ChatMessage> &to) {
  if (isOfType(block, "tool_result"))
    return readToolResult(field, block, to);
  if (!isOfType(block, "text"))
    return otherBlock(field, block, "text or tool_result");
  ChatMessage &turn = openTurn("user", to);
  turn.hasContent = true;
  return readTextBlock(field, block, "\n", turn.content);
}

/// Thinking comes back with a signature, which here is empty.
Problem readThinkingBlock(std::string_view field, const JsonValue &block,
                          ChatMessage &turn) {
  if (Problem found =
          checkBlock(field, block, {"type", "thinking", "signature"}))
    return found;
  std::string_view text, signature;
  if (!block["thinking"].get(text) ||
      (!block["signature"].isNull() && !block["signature"].get(signature)))
    return problem(field, "a block of type thinking must have the string "
                          "thinking, and may have a signature");
  turn.reasoning += (turn.reasoning.empty() ? "" : "\n") + std::string(text);
  return std::nullopt;
}

Problem readAssistantBlock(std::string_view field, const JsonValue &block,
                           std::size_t &left, std::vector<ChatMessage> &to) {
  ChatMessage &turn = openTurn("assistant", to);
  if (isOfType(block, "thinking"))
    return readThinkingBlock(field, block, turn);
  if (isOfType(block, "text")) {
    turn.hasContent = true;
    return readTextBlock(field, block, "", turn.content);
  }
  if (!isOfType(block, "tool_use"))
    return otherBlock(field, block, "text, thinking or tool_use");
  if (Problem found = checkBlock(
          field, block, {"type", "id", "name", "input", "cache_control"}))
    return found;
  if (Problem found = readCacheHint(field, block["cache_control"]))
    return found;
  return readToolUse(field, block, left, turn.calls);
}

Problem readTurn(std::string_view field, const JsonValue &turn,
                 std::size_t &left, std::vector<ChatMessage> &to) {
  static constexpr std::string_view known[] = {"role", "content"};
  std::string_view role, text;
  if (!turn["role"].get(role) || (role != "user" && role != "assistant"))
    return problem(field, "the role of a message must be user or assistant; "
                          "system is a field of its own");
  if (Problem found = checkMembers(field, "a message", turn, known))
    return found;
  const JsonValue &content = turn["content"];
  if (content.get(text)) {
    ChatMessage &opened = openTurn(role, to);
    if (opened.hasContent && role == "user")
      opened.content += "\n";
    opened.hasContent = true;
    opened.content += text;
    return std::nullopt;
  }
  if (!content.isArray())
    return problem(field, "a message's content must be a string or a list of "
                          "blocks");
  for (const JsonValue &block : content.elements())
    if (Problem found = role == "user"
                            ? readUserBlock(field, block, to)
                            : readAssistantBlock(field, block, left, to))
      return found;
  return std::nullopt;
}

} // namespace

Problem readTurns(const Field &field, const JsonValue &value,
                  ApiRequest &request) {
  std::size_t left = kMaxCallValues;
  for (const JsonValue &each : value.elements())
    if (Problem found = readTurn(field.name, each, left, request.messages))
      return found;
  if (request.messages.empty())
    return problem(field.name,
                   "messages must be a list of at least one message");
  if (request.messages.back().role == "assistant")
    return problem(field.name, "the last message must be the user's: a "
                               "response is a message of its own and does not "
                               "continue one");
  for (ChatMessage &message : request.messages)
    message.hasContent |= message.calls.empty();
  return std::nullopt;
}

Problem readSystem(const Field &field, const JsonValue &value,
                   ApiRequest &request) {
  std::string text;
  if (Problem found = readBlocksOfText(field.name, value, text))
    return found;
  if (!text.empty())
    request.instructions = std::move(text);
  return std::nullopt;
}

Problem readStopSequences(const Field &field, const JsonValue &value,
                          ApiRequest &request) {
  if (!value.isArray())
    return problem(field.name, "stop_sequences must be a list of strings");
  return readStop(field, value, request);
}

/// Sets variables of the chat template (Service). The budget is a hint, which
/// no template here takes.
Problem readThinking(const Field &field, const JsonValue &value,
                     ApiRequest &request) {
  std::string_view type;
  value["type"].get(type);
  const bool isEnabled = type == "enabled";
  bool good = isEnabled || type == "disabled" || type == "adaptive";
  for (const JsonValue::Member &member : value.members()) {
    int64_t budget = 0;
    good = good && (member.name == "type" || member.value.isNull() ||
                    (isEnabled && member.name == "budget_tokens" &&
                     getWhole(member.value, budget) && budget >= 1024));
  }
  if (!good)
    return problem(field.name, "thinking must have the type enabled, with "
                               "budget_tokens of at least 1024, disabled or "
                               "adaptive");
  if (type != "adaptive")
    request.thinks = isEnabled;
  return std::nullopt;
}

/// Says on whose behalf a request is made, which changes nothing.
Problem readCaller(const Field &field, const JsonValue &value, ApiRequest &) {
  std::string_view id;
  bool good = value.isObject();
  for (const JsonValue::Member &member : value.members())
    good = good && (member.value.isNull() ||
                    (member.name == "user_id" && member.value.get(id)));
  if (good)
    return std::nullopt;
  return problem(field.name, "metadata may have a user_id, a string");
}

Problem readMessagesTier(const Field &field, const JsonValue &value,
                         ApiRequest &) {
  std::string_view text;
  if (value.get(text) && (text == "auto" || text == "standard_only"))
    return std::nullopt;
  return problem(field.name, "service_tier must be auto or standard_only");
}

Problem readCacheControl(const Field &field, const JsonValue &value,
                         ApiRequest &) {
  return readCacheHint(field.name, value);
}

} // namespace tessera::serve
