// Fields that OpenAI has and this server has not: read where they say nothing,
// refused where they ask for something, so that no wish is lost in silence.
#include "runtime/serve/ApiFields.h"

namespace tessera::serve {

// Only about how OpenAI keeps, bills and routes, or about tools.

Problem ignoreText(const Field &field, const JsonValue &value, ApiRequest &) {
  std::string ignored;
  return readText(field.name, value, ignored);
}

Problem ignoreBool(const Field &field, const JsonValue &value, ApiRequest &) {
  bool ignored = false;
  return readBool(field.name, value, ignored);
}

Problem ignoreWhole(const Field &field, const JsonValue &value, ApiRequest &) {
  int64_t ignored = 0;
  return readWhole(field, value, ignored);
}

Problem readFalse(const Field &field, const JsonValue &value, ApiRequest &) {
  bool wanted = true;
  if (value.get(wanted) && !wanted)
    return std::nullopt;
  return problem(field.name, "{} is not served: {}", field.name, field.about);
}

/// "", [] or {}.
Problem readEmpty(const Field &field, const JsonValue &value, ApiRequest &) {
  std::string_view text;
  if ((value.get(text) && text.empty()) ||
      (value.isArray() && value.elements().empty()) ||
      (value.isObject() && value.members().empty()))
    return std::nullopt;
  return problem(field.name, "{} is not served: {}", field.name, field.about);
}

Problem readZero(const Field &field, const JsonValue &value, ApiRequest &) {
  int64_t number = 1;
  if (getWhole(value, number) && number == 0)
    return std::nullopt;
  return problem(field.name, "{} is not served: {}", field.name, field.about);
}

/// Without tools there is nothing to choose.
Problem readToolChoice(const Field &field, const JsonValue &value,
                       ApiRequest &) {
  std::string_view text;
  if (value.get(text) && (text.empty() || text == "none" || text == "auto"))
    return std::nullopt;
  return problem(field.name, "{} is not served: {}", field.name, field.about);
}

/// Read after `n`.
Problem readBestOf(const Field &field, const JsonValue &value,
                   ApiRequest &request) {
  int64_t best = 0;
  if (!getWhole(value, best) || best != request.n)
    return problem(field.name,
                   "best_of is not served; leave it out, or give it the "
                   "value of n");
  return std::nullopt;
}

Problem readResponseFormat(const Field &field, const JsonValue &value,
                           ApiRequest &) {
  std::string_view type;
  if (!value["type"].get(type) || type != "text")
    return problem(field.name, "response_format must be {{\"type\": "
                               "\"text\"}}: answers in a given form are not "
                               "served");
  return std::nullopt;
}

/// Where the newer API has its response_format.
Problem readTextFormat(const Field &field, const JsonValue &value,
                       ApiRequest &) {
  std::string_view type;
  const JsonValue &format = value["format"];
  bool plain = format.isNull() || (format["type"].get(type) && type == "text");
  for (const JsonValue::Member &member : value.members())
    plain &= member.name == "format" || member.value.isNull();
  if (!value.isObject() || !plain)
    return problem(field.name,
                   "text must be {{\"format\": {{\"type\": \"text\"}}}}: "
                   "answers in a given form are not served");
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
                       ApiRequest &) {
  std::string_view text;
  if (!value.get(text) || text != "disabled")
    return problem(field.name, "truncation must be \"disabled\": an input that "
                               "is too long is refused");
  return std::nullopt;
}

} // namespace tessera::serve
