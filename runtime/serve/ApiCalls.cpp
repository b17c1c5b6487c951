// Reads earlier tool calls, in messages of chats and in items and blocks of the
// other APIs.
#include "runtime/serve/ApiFields.h"

#include <algorithm>

namespace tessera::serve {

bool isModest(const JsonValue &value, size_t &left) {
  size_t own = value.elements().size() + value.members().size();
  if (value.members().size() > kMaxMembers || own > left)
    return false;
  left -= own;
  auto fits = [&](const JsonValue &each) { return isModest(each, left); };
  return std::ranges::all_of(value.elements(), fits) &&
         std::ranges::all_of(value.members(), [&](const auto &member) {
           const auto &[name, inner] = member;
           return fits(inner);
         });
}

static Problem checkArguments(std::string_view name, const JsonValue &arguments,
                              size_t &left) {
  if (isModest(arguments, left))
    return std::nullopt;
  return problem(name,
                 "the arguments of a message's calls must have at most {} "
                 "values, and {} members an object",
                 kMaxCallValues, kMaxMembers);
}

Problem readToolUse(std::string_view name, const JsonValue &block, size_t &left,
                    std::vector<ToolCall> &to) {
  std::string_view id, function;
  const JsonValue &input = block["input"];
  if (!block["id"].get(id) || !block["name"].get(function) || !input.isObject())
    return problem(name, "a block of type tool_use must have an id, a name, "
                         "and the object input");
  if (Problem found = checkArguments(name, input, left))
    return found;
  to.push_back({std::string(id), std::string(function), jsonOf(input)});
  return std::nullopt;
}

Problem readCall(std::string_view name, const JsonValue &id,
                 const JsonValue &called, size_t &left,
                 std::vector<ToolCall> &to) {
  std::string_view given, function, arguments;
  if (!id.get(given) || !called["name"].get(function) ||
      !called["arguments"].get(arguments))
    return problem(name, "a call must have an id, the name of a function, and "
                         "arguments, a string");
  // Templates expect them as a value.
  auto parsed = JsonValue::parse(arguments, "arguments");
  if (!parsed.ok() || !parsed->isObject())
    return problem(name, "the arguments of a call must be the JSON of an "
                         "object");
  if (Problem found = checkArguments(name, *parsed, left))
    return found;
  to.push_back(
      {std::string(given), std::string(function), std::string(arguments)});
  return std::nullopt;
}

static Problem readCalls(std::string_view name, const JsonValue &value,
                         std::vector<ToolCall> &to) {
  static constexpr std::string_view known[] = {"id", "type", "function"};
  static constexpr std::string_view inside[] = {"name", "arguments"};
  size_t left = kMaxCallValues;
  for (const JsonValue &each : value.elements()) {
    std::string_view type;
    const JsonValue &called = each["function"];
    if (!each["type"].get(type) || type != "function")
      return problem(name, "a call must be {{\"id\": ..., \"type\": "
                           "\"function\", \"function\": {{\"name\": ..., "
                           "\"arguments\": a string}}}}");
    if (Problem found = checkMembers(name, name, each, known))
      return found;
    if (Problem found = checkMembers(name, name, called, inside))
      return found;
    if (Problem found = readCall(name, each["id"], called, left, to))
      return found;
  }
  if (to.empty())
    return problem(name, "tool_calls must be a list of at least one call");
  return std::nullopt;
}

Problem readOlderCall(std::string_view name, const JsonValue &message,
                      size_t at, OlderCalls &calls, ChatMessage &read) {
  static constexpr std::string_view known[] = {"name", "arguments"};
  // Nine digits: templates of Mistral's models expect ids of nine characters.
  auto idOf = [](size_t number) { return fmt::format("{:09}", number); };
  if (read.role == "function") {
    std::string_view called;
    message["name"].get(called);
    auto call = calls.find(called);
    if (call == calls.end())
      return problem(name, "a message of the role function must have the name "
                           "of a function_call before it");
    read.role = "tool";
    read.callId = idOf(call->second);
    return std::nullopt;
  }
  const JsonValue &call = message["function_call"];
  if (call.isNull())
    return std::nullopt;
  if (read.role != "assistant" || !read.calls.empty())
    return problem(name, "only an assistant's message without tool_calls has a "
                         "function_call");
  if (Problem found = checkMembers(name, "function_call", call, known))
    return found;
  auto id = JsonValue::parse('"' + idOf(at) + '"', "id");
  size_t left = kMaxCallValues;
  if (Problem found = readCall(name, *id, call, left, read.calls))
    return found;
  calls[read.calls.front().name] = at;
  return std::nullopt;
}

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

} // namespace tessera::serve
