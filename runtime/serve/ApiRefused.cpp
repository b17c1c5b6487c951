// Fields of OpenAI's API that this server does not support: accepted with
// values that change nothing, otherwise an error, so that no setting is
// ignored.
#include "runtime/serve/ApiFields.h"

#include <algorithm>

namespace tessera::serve {

// Only for storage, billing and routing at OpenAI, or for tools.

Problem ignoreText(const Field &field, const JsonValue &value, ApiRequest &) {
  std::string ignored;
  return readText(field.name, value, ignored);
}

Problem ignoreWhole(const Field &field, const JsonValue &value, ApiRequest &) {
  int64_t ignored = 0;
  return readWhole(field, value, ignored);
}

/// "", [] or {}.
Problem readEmpty(const Field &field, const JsonValue &value, ApiRequest &) {
  std::string_view text;
  if ((value.get(text) && text.empty()) ||
      (value.isArray() && value.elements().empty()) ||
      (value.isObject() && value.members().empty()))
    return std::nullopt;
  return problem(field.name, "{} is not supported: {}", field.name,
                 field.about);
}

Problem readZero(const Field &field, const JsonValue &value, ApiRequest &) {
  int64_t number = 1;
  if (getWhole(value, number) && number == 0)
    return std::nullopt;
  return problem(field.name, "{} is not supported: {}", field.name,
                 field.about);
}

Problem readFalse(const Field &field, const JsonValue &value, ApiRequest &) {
  bool asks = true;
  if (value.get(asks) && !asks)
    return std::nullopt;
  return problem(field.name, "{} may only be false: {}", field.name,
                 field.about);
}

/// Read after `n`.
Problem readBestOf(const Field &field, const JsonValue &value,
                   ApiRequest &request) {
  int64_t best = -1;
  if (!getWhole(value, best) || (best != 0 && best != request.n))
    return problem(
        field.name,
        "best_of is not supported; leave it out, or give it 0 or the "
        "value of n");
  return std::nullopt;
}

/// Audio settings, which require a modality that is not supported.
Problem readAudio(const Field &field, const JsonValue &value, ApiRequest &) {
  if (!value.isObject())
    return problem(field.name, "audio must be an object");
  return std::nullopt;
}

Problem readModalities(const Field &field, const JsonValue &value,
                       ApiRequest &) {
  std::string_view only;
  if (value.elements().size() != 1 || !value.elements()[0].get(only) ||
      only != "text")
    return problem(field.name, "modalities must be [\"text\"]");
  return std::nullopt;
}

Problem readTruncation(const Field &field, const JsonValue &value,
                       ApiRequest &request) {
  std::string_view text;
  request.dropsOldest = value.get(text) && text == "auto";
  if (!request.dropsOldest && text != "disabled")
    return problem(field.name, "truncation must be auto or disabled");
  return std::nullopt;
}

/// Predicted output, with which OpenAI speeds up a response.
Problem readPrediction(const Field &field, const JsonValue &value,
                       ApiRequest &) {
  std::string_view type, text;
  const JsonValue &content = value["content"];
  bool good = value["type"].get(type) && type == "content" &&
              (content.get(text) || content.isArray());
  for (const JsonValue &part : content.elements())
    good = good && part["type"].get(type) && type == "text" &&
           part["text"].get(text);
  if (!good)
    return problem(field.name, "prediction must be {{\"type\": \"content\", "
                               "\"content\": a string or parts of type text}}");
  return std::nullopt;
}

Problem readServiceTier(const Field &field, const JsonValue &value,
                        ApiRequest &request) {
  request.asksTier = true;
  return ignoreText(field, value, request);
}

static bool isOneOf(const JsonValue &value,
                    std::initializer_list<std::string_view> allowed) {
  std::string_view text;
  return value.get(text) && std::ranges::count(allowed, text) != 0;
}

/// Whether the template takes it is checked later (Service::setEffort).
static bool getEffort(const JsonValue &value, ApiRequest &request) {
  std::string_view text;
  if (value.get(text))
    request.effort = text;
  return isOneOf(value, {"none", "minimal", "low", "medium", "high"});
}

Problem readEffort(const Field &field, const JsonValue &value,
                   ApiRequest &request) {
  if (getEffort(value, request))
    return std::nullopt;
  return problem(field.name, "{} must be none, minimal, low, medium or high",
                 field.name);
}

Problem readReasoning(const Field &field, const JsonValue &value,
                      ApiRequest &request) {
  bool good = value.isObject();
  for (const JsonValue::Member &member : value.members())
    good = good &&
           (member.value.isNull() ||
            (member.name == "effort" && getEffort(member.value, request)) ||
            // It changes nothing.
            ((member.name == "summary" || member.name == "generate_summary") &&
             isOneOf(member.value, {"auto", "concise", "detailed"})));
  if (good)
    return std::nullopt;
  return problem(field.name,
                 "reasoning may have an effort of none, minimal, low, medium "
                 "or high, and a summary");
}

Problem readVerbosity(const Field &field, const JsonValue &value,
                      ApiRequest &) {
  if (isOneOf(value, {"low", "medium", "high"}))
    return std::nullopt;
  return problem(field.name, "verbosity must be low, medium or high");
}

// Each extends items of a type that responses never have here.
std::span<const std::string_view> includables() {
  static constexpr std::string_view list[] = {
      "code_interpreter_call.outputs", "computer_call_output.output.image_url",
      "file_search_call.results",      "message.input_image.image_url",
      "reasoning.encrypted_content",   "web_search_call.action.sources"};
  return list;
}

Problem readInclude(const Field &field, const JsonValue &value, ApiRequest &) {
  std::string_view text;
  for (const JsonValue &each : value.elements())
    if (!each.get(text) || std::ranges::count(includables(), text) == 0)
      return problem(field.name,
                     "{} may be of {}; logprobs are in "
                     "/v1/chat/completions",
                     field.name, fmt::join(includables(), ", "));
  if (!value.isArray())
    return problem(field.name, "{} must be a list", field.name);
  return std::nullopt;
}

Problem refuseAny(const Field &field, const JsonValue &, ApiRequest &) {
  return problem(field.name, "{} is not supported: {}", field.name,
                 field.about);
}

} // namespace tessera::serve
