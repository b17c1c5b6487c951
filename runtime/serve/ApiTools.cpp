// Reads tools, which are functions that may be called, and the template's
// variables.
#include "runtime/serve/ApiFields.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

constexpr size_t kMaxToolValues = 50'000;

bool isToolName(std::string_view name) {
  auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, fits);
}

/// Reads members that were checked.
Problem readFunction(std::string_view field, const JsonValue &value, Tool &to) {
  std::string_view text;
  if (!value["name"].get(text) || !isToolName(text))
    return problem(field, "a function must have a name of up to 64 letters, "
                          "digits, _ and -");
  to.name = text;
  if (!value["description"].isNull() && !value["description"].get(text))
    return problem(field, "the description of {} must be a string", to.name);
  to.parameters = value["parameters"];
  if (!to.parameters.isNull() && !to.parameters.isObject())
    return problem(field, "the parameters of {} must be a JSON schema",
                   to.name);
  std::string_view type;
  if (to.parameters["type"].get(type) && type != "object")
    return problem(field, "the parameters of {} must be of type object",
                   to.name);
  if (!value["strict"].isNull() && !value["strict"].get(to.strict))
    return problem(field, "strict must be true or false");
  return std::nullopt;
}

Problem readTool(std::string_view field, const JsonValue &value, Tool &to) {
  static constexpr std::string_view known[] = {"type", "function"},
                                    inside[] = {"name", "description",
                                                "parameters", "strict"};
  std::string_view type;
  if (!value["type"].get(type) || type != "function" ||
      !value["function"].isObject())
    return problem(field, "a tool must be {{\"type\": \"function\", "
                          "\"function\": {{\"name\": ...}}}}");
  if (Problem found = checkMembers(field, field, value, known))
    return found;
  if (Problem found = checkMembers(field, field, value["function"], inside))
    return found;
  to.json = jsonOf(value);
  return readFunction(field, value["function"], to);
}

/// The format of responses: {"type": "function", "name", …}.
Problem readFlatTool(std::string_view field, const JsonValue &value, Tool &to) {
  static constexpr std::string_view known[] = {"type", "name", "description",
                                               "parameters", "strict"};
  std::string_view type;
  if (!value["type"].get(type) || type != "function")
    return problem(field, "a tool must be {{\"type\": \"function\", "
                          "\"name\": ...}}; no other type is supported");
  if (Problem found = checkMembers(field, field, value, known))
    return found;
  nlohmann::ordered_json function = nlohmann::ordered_json::object();
  for (const JsonValue::Member &member : value.members())
    if (member.name != "type" && member.name != "strict" &&
        !member.value.isNull())
      function[member.name] =
          nlohmann::ordered_json::parse(jsonOf(member.value));
  to.json = nlohmann::ordered_json{{"type", "function"},
                                   {"function", std::move(function)}}
                .dump();
  return readFunction(field, value, to);
}

/// The deprecated `functions`: {"name", "description", "parameters"}.
Problem readOlderTool(std::string_view field, const JsonValue &value,
                      Tool &to) {
  static constexpr std::string_view known[] = {"name", "description",
                                               "parameters"};
  if (Problem found = checkMembers(field, field, value, known))
    return found;
  to.json =
      fmt::format(R"({{"type":"function","function":{}}})", jsonOf(value));
  return readFunction(field, value, to);
}

/// Anthropic's format: {"name", "description", "input_schema"}.
Problem readCustomTool(std::string_view field, const JsonValue &value,
                       Tool &to) {
  static constexpr std::string_view known[] = {
      "type", "name", "description", "input_schema", "cache_control", "strict"};
  using Json = nlohmann::ordered_json;
  std::string_view type = "custom";
  if (!value["type"].isNull() && (!value["type"].get(type) || type != "custom"))
    return problem(field,
                   "a tool must be {{\"name\": ..., \"input_schema\": ...}}, "
                   "got the type {}; the server runs no tools",
                   quote(type));
  if (Problem found = checkMembers(field, field, value, known))
    return found;
  if (Problem found = readCacheHint(field, value["cache_control"]))
    return found;
  if (!value["input_schema"].isObject())
    return problem(field, "a tool must have an input_schema, a JSON schema");
  Json function = Json::object();
  for (auto [given, own] :
       {std::pair("name", "name"), std::pair("description", "description"),
        std::pair("input_schema", "parameters")})
    if (!value[given].isNull())
      function[own] = Json::parse(jsonOf(value[given]));
  to.json = Json{{"type", "function"}, {"function", function}}.dump();
  if (!value["strict"].isNull())
    function["strict"] = Json::parse(jsonOf(value["strict"]));
  auto made = JsonValue::parse(function.dump(), field);
  return made.ok() ? readFunction(field, *made, to)
                   : problem(field, "{}", made.message());
}

using ToolReader = Problem (*)(std::string_view, const JsonValue &, Tool &);

Problem readList(const Field &field, const JsonValue &value, ToolReader read,
                 ApiRequest &request) {
  if (!value.isArray() || value.elements().size() > kMaxTools)
    return problem(field.name, "{} must be a list of at most {}", field.name,
                   kMaxTools);
  size_t left = kMaxToolValues;
  if (!isModest(value, left))
    return problem(field.name,
                   "{} must have at most {} values, and {} members an object",
                   field.name, kMaxToolValues, kMaxMembers);
  size_t bytes = 0;
  for (const JsonValue &each : value.elements()) {
    Tool tool;
    if (Problem found = read(field.name, each, tool))
      return found;
    bytes += tool.json.size();
    if (bytes > kMaxToolBytes)
      return problem(field.name, "{} must have at most {} bytes", field.name,
                     kMaxToolBytes);
    if (std::ranges::count(request.tools, tool.name, &Tool::name) != 0)
      return problem(field.name, "duplicate tool {}", tool.name);
    request.tools.push_back(std::move(tool));
  }
  return std::nullopt;
}

/// A tool of the request, which was read before.
Problem chooseTool(std::string_view field, std::string_view name,
                   ApiRequest &request) {
  if (!request.tools.empty() &&
      std::ranges::count(request.tools, name, &Tool::name) == 0)
    return problem(field, "unknown tool {}", quote(name));
  request.toolUse = ToolUse::required;
  request.onlyTool = name;
  return std::nullopt;
}

} // namespace

Problem readTools(const Field &field, const JsonValue &value,
                  ApiRequest &request) {
  return readList(field, value, readTool, request);
}

Problem readResponseTools(const Field &field, const JsonValue &value,
                          ApiRequest &request) {
  return readList(field, value, readFlatTool, request);
}

Problem readCustomTools(const Field &field, const JsonValue &value,
                        ApiRequest &request) {
  return readList(field, value, readCustomTool, request);
}

/// Anthropic's. Read after `tools`.
Problem readTypedToolChoice(const Field &field, const JsonValue &value,
                            ApiRequest &request) {
  static constexpr std::string_view known[] = {"type", "name",
                                               "disable_parallel_tool_use"};
  std::string_view type, name;
  value["type"].get(type);
  if (Problem found = checkMembers(field.name, field.name, value, known))
    return found;
  const JsonValue &single = value["disable_parallel_tool_use"];
  bool isSingle = false;
  if (!single.isNull() && !single.get(isSingle))
    return problem(field.name, "disable_parallel_tool_use must be true or "
                               "false");
  request.parallelCalls = !isSingle;
  const bool hasName = value["name"].get(name);
  if (type == "tool" && hasName)
    return chooseTool(field.name, name, request);
  if ((type != "auto" && type != "any" && type != "none") ||
      !value["name"].isNull())
    return problem(field.name,
                   "tool_choice must have the type auto, any or none, or tool "
                   "and a name");
  request.toolUse = type == "auto"  ? ToolUse::automatic
                    : type == "any" ? ToolUse::required
                                    : ToolUse::none;
  return std::nullopt;
}

/// Read after `tools`.
Problem readFunctions(const Field &field, const JsonValue &value,
                      ApiRequest &request) {
  if (!request.tools.empty())
    return problem(field.name,
                   "functions is the deprecated name of tools: leave "
                   "out one of them");
  if (Problem found = readList(field, value, readOlderTool, request))
    return found;
  request.usesFunctions = !request.tools.empty();
  return std::nullopt;
}

/// Read after `tools`.
Problem readToolChoice(const Field &field, const JsonValue &value,
                       ApiRequest &request) {
  bool isFlat = field.endpoints == kResponses;
  static constexpr std::string_view known[] = {"type", "function"},
                                    flat[] = {"type", "name"},
                                    inside[] = {"name"};
  std::string_view text, name;
  if (value.get(text) && (text == "none" || text == "auto")) {
    request.toolUse = text == "none" ? ToolUse::none : ToolUse::automatic;
    return std::nullopt;
  }
  request.toolUse = ToolUse::required;
  if (value.get(text) && text == "required")
    return std::nullopt;
  const JsonValue &function = isFlat ? value : value["function"];
  if (!value["type"].get(text) || text != "function" ||
      !function["name"].get(name))
    return problem(field.name,
                   "tool_choice must be none, auto, required, or {}",
                   isFlat ? R"({"type": "function", "name": ...})"
                          : R"({"type": "function", "function": {"name": )"
                            R"(...}})");
  std::span<const std::string_view> outer = known, inner = inside;
  if (isFlat)
    outer = inner = flat;
  if (Problem found = checkMembers(field.name, field.name, value, outer))
    return found;
  if (Problem found = checkMembers(field.name, field.name, function, inner))
    return found;
  return chooseTool(field.name, name, request);
}

/// Read after `functions`.
Problem readFunctionCall(const Field &field, const JsonValue &value,
                         ApiRequest &request) {
  static constexpr std::string_view known[] = {"name"};
  std::string_view text;
  if (value.get(text) && (text == "none" || text == "auto")) {
    if (request.usesFunctions)
      request.toolUse = text == "none" ? ToolUse::none : ToolUse::automatic;
    return std::nullopt;
  }
  if (!value["name"].get(text))
    return problem(field.name,
                   "function_call must be none, auto or {{\"name\": ...}}");
  if (Problem found = checkMembers(field.name, field.name, value, known))
    return found;
  if (!request.tools.empty() && !request.usesFunctions)
    return problem(field.name, "use tool_choice with tools");
  request.usesFunctions = true;
  return chooseTool(field.name, text, request);
}

//===--- the template -----------------------------------------------------===//

Problem readTemplateVariables(const Field &field, const JsonValue &value,
                              ApiRequest &request) {
  if (!value.isObject())
    return problem(field.name, "{} must be an object", field.name);
  for (std::string_view own : {"messages", "tools", "add_generation_prompt"})
    for (const JsonValue::Member &member : value.members())
      if (member.name == own)
        return problem(field.name,
                       "{} may not replace {}, which is a field of "
                       "the request",
                       field.name, own);
  size_t left = kMaxToolValues;
  if (!isModest(value, left))
    return problem(field.name,
                   "{} must have at most {} values, and {} members an object",
                   field.name, kMaxToolValues, kMaxMembers);
  if (value.members().empty())
    return std::nullopt;
  request.templated.variables = jsonOf(value);
  if (request.templated.variables.size() > kMaxToolBytes)
    return problem(field.name, "{} must have at most {} bytes", field.name,
                   kMaxToolBytes);
  return std::nullopt;
}

Problem readGenerationPrompt(const Field &field, const JsonValue &value,
                             ApiRequest &request) {
  return readBool(field.name, value, request.templated.opensAnswer);
}

} // namespace tessera::serve
