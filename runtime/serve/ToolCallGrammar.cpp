// Grammars of structured output that calls tools.
#include "runtime/infer/grammar/JsonSchema.h"
#include "runtime/serve/Forms.h"

#include <algorithm>

namespace tessera::serve {
namespace {

const JsonValue &schemaOf(std::string_view text) {
  static const JsonValue anything =
      JsonValue::parse(R"({"type": "object"})", "schema").take();
  static const JsonValue nothing =
      JsonValue::parse(R"({"type": "object", "properties": {},
                           "additionalProperties": false})",
                       "schema")
          .take();
  return text == "anything" ? anything : nothing;
}

/// The schema of the arguments. If the model decides whether to call, only
/// strict tools are constrained by their schemas.
const JsonValue &argumentsOf(const Tool &tool, ToolUse use) {
  if (use == ToolUse::automatic && !tool.strict)
    return schemaOf("anything");
  if (tool.parameters.isNull())
    return schemaOf("nothing");
  // An empty schema still means an object.
  return tool.parameters.members().empty() ? schemaOf("anything")
                                           : tool.parameters;
}

grammar::FramesAround aroundOf(const ApiRequest &request,
                               const ToolFormat &format) {
  const ObjectCalls *objects = format.objects();
  const NamedCalls *named = format.named();
  // The number of a call is part of its text, so that one text has one call.
  bool several = request.parallelCalls && request.onlyTool.empty() &&
                 !request.usesFunctions && !(named && named->nameEnd == ":");
  const std::string open(format.open);
  grammar::FramesAround around;
  around.isOptional = request.toolUse == ToolUse::automatic;
  // Everything after the tag is parsed as calls, so only the tag ends the
  // content before them.
  if (format.isList()) {
    around.before = open;
    around.opening = objects->listOpen;
    around.between = ", ";
    around.after = "]" + std::string(format.close);
  } else if (named) {
    around.before = std::string(named->section) + open;
    around.between = std::string(named->again) + open;
    around.after = named->sectionClose;
  } else if (!format.close.empty()) {
    around.before = open;
    around.between = "\n" + open;
  }
  if (!several)
    around.between.clear();
  return around;
}

grammar::SchemaFrame frameOf(const Tool &tool, ToolUse use,
                             const ToolFormat &format) {
  std::string error = fmt::format("the parameters of {}: ", tool.name);
  const JsonValue *arguments = &argumentsOf(tool, use);
  if (const NamedCalls *named = format.named())
    return {std::move(error),
            fmt::format("{}{}{}{}", named->namePrefix, tool.name,
                        named->nameEnd == ":" ? ":0" : "", named->separator),
            arguments, fmt::format("{}{}", named->lastSpace, format.close)};
  const ObjectCalls &objects = *format.objects();
  const bool isAlone = !format.isList() && !format.close.empty();
  std::string_view line = isAlone ? "\n" : "";
  return {std::move(error),
          fmt::format(R"({}{{"{}": "{}", "{}": )", line, objects.nameKey,
                      tool.name, objects.arguments),
          arguments, fmt::format("}}{}{}", line, isAlone ? format.close : "")};
}

} // namespace

bool needsToolForm(const ApiRequest &request) {
  return request.mayCall() &&
         (request.toolUse == ToolUse::required ||
          (!request.parallelCalls && !request.usesFunctions) ||
          std::ranges::any_of(request.tools, &Tool::strict));
}

StatusOr<std::shared_ptr<const AnswerForm>>
makeArgumentsForm(const Tool &tool) {
  const grammar::SchemaFrame frame = {
      fmt::format("the parameters of {}: ", tool.name), "",
      &argumentsOf(tool, ToolUse::required), ""};
  auto grammar = grammar::grammarOfFrames({&frame, 1}, {});
  if (!grammar.ok())
    return grammar.status();
  auto form = std::make_shared<AnswerForm>();
  form->key = "arguments " + tool.json;
  form->grammar = std::make_shared<const grammar::Grammar>(grammar.take());
  return std::shared_ptr<const AnswerForm>(form);
}

StatusOr<std::shared_ptr<const AnswerForm>>
makeToolForm(const ApiRequest &request, const ToolFormat &format, bool hasTag) {
  bool isFree = request.toolUse == ToolUse::automatic;
  if (format.tagged())
    return Status::error(
        "for this model, tool_choice must be auto or none, tools not strict, "
        "and parallel_tool_calls true: no grammar constrains calls of {}",
        format.name);
  if (isFree && (!hasTag || (format.objects() && format.objects()->mayBeBare)))
    return Status::error(
        "for this model, strict tools and parallel_tool_calls: "
        "false require tool_choice: required, or that of one "
        "function");
  auto form = std::make_shared<AnswerForm>();
  form->key =
      fmt::format("tools {} {} {} {} ", format.name, int(request.toolUse),
                  request.parallelCalls, request.onlyTool);
  std::vector<grammar::SchemaFrame> frames;
  for (const Tool &tool : request.tools) {
    if (!request.onlyTool.empty() && tool.name != request.onlyTool)
      continue;
    frames.push_back(frameOf(tool, request.toolUse, format));
    form->key += fmt::format("{} {}", tool.json.size(), tool.json);
  }
  auto grammar = grammar::grammarOfFrames(frames, aroundOf(request, format));
  if (!grammar.ok())
    return grammar.status();
  form->grammar = std::make_shared<const grammar::Grammar>(grammar.take());
  return std::shared_ptr<const AnswerForm>(form);
}

} // namespace tessera::serve
