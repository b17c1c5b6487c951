#include "runtime/serve/Forms.h"
#include "runtime/infer/grammar/JsonSchema.h"
#include "runtime/serve/ApiFields.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

// Each has up to 64 MiB of masks.
constexpr size_t kKeptForms = 16;

/// One text for one value; no two values have the same.
void appendKey(const JsonValue &value, std::string &out) {
  bool truth;
  uint64_t natural;
  int64_t whole;
  double real;
  std::string_view text;
  if (value.get(truth)) {
    out += truth ? "t" : "f";
  } else if (value.get(natural)) {
    out += fmt::format("i{} ", natural);
  } else if (value.get(whole)) {
    out += fmt::format("i{} ", whole);
  } else if (value.get(real)) {
    out += fmt::format("d{} ", real);
  } else if (value.get(text)) {
    out += fmt::format("s{} {}", text.size(), text);
  } else if (value.isArray()) {
    out += fmt::format("a{} ", value.elements().size());
    for (const JsonValue &each : value.elements())
      appendKey(each, out);
  } else if (value.isObject()) {
    out += fmt::format("o{} ", value.members().size());
    for (const auto &[name, member] : value.members()) {
      out += fmt::format("{} {}", name.size(), name);
      appendKey(member, out);
    }
  } else {
    out += "n";
  }
}

nlohmann::ordered_json copied(const JsonValue &value) {
  using Json = nlohmann::ordered_json;
  bool truth;
  uint64_t natural;
  int64_t whole;
  double real;
  std::string_view text;
  if (value.get(truth))
    return truth;
  if (value.get(natural))
    return natural;
  if (value.get(whole))
    return whole;
  if (value.get(real))
    return real;
  if (value.get(text))
    return text;
  Json copy;
  if (value.isArray())
    copy = Json::array();
  if (value.isObject())
    copy = Json::object();
  for (const JsonValue &each : value.elements())
    copy.push_back(copied(each));
  for (const auto &[name, member] : value.members())
    copy[name] = copied(member);
  return copy;
}

} // namespace

std::string jsonOf(const JsonValue &value) { return copied(value).dump(); }

StatusOr<std::shared_ptr<const AnswerForm>>
parseAnswerForm(const JsonValue &format) {
  std::string_view type;
  if (!format["type"].get(type))
    return Status::error("type must be text, json_object or json_schema");
  if (type == "text")
    return std::shared_ptr<const AnswerForm>();
  auto form = std::make_shared<AnswerForm>();
  if (type == "json_object") {
    form->json = R"({"type":"json_object"})";
    form->key = "object";
    form->grammar = std::make_shared<const grammar::Grammar>(
        grammar::grammarOfJsonObject());
    return std::shared_ptr<const AnswerForm>(form);
  }
  if (type != "json_schema")
    return Status::error("type must be text, json_object or json_schema, got: "
                         "{}",
                         type);
  // Chats have the schema one deeper than responses.
  const JsonValue &holder =
      format["json_schema"].isObject() ? format["json_schema"] : format;
  const JsonValue &schema = holder["schema"];
  if (!schema.isObject())
    return Status::error("json_schema must have an object schema");
  auto grammar = grammar::grammarOfJsonSchema(schema);
  if (!grammar.ok())
    return Status::error("schema: {}", grammar.message());
  appendKey(schema, form->key);
  form->json = jsonOf(format);
  form->grammar = std::make_shared<const grammar::Grammar>(grammar.take());
  return std::shared_ptr<const AnswerForm>(form);
}

Problem readResponseFormat(const Field &field, const JsonValue &value,
                           ApiRequest &request) {
  auto form = parseAnswerForm(value);
  if (!form.ok())
    return problem(field.name, "{}: {}", field.name, form.message());
  request.form = form.take();
  return std::nullopt;
}

// Where the newer API has its response_format.
Problem readTextFormat(const Field &field, const JsonValue &value,
                       ApiRequest &request) {
  for (const JsonValue::Member &member : value.members()) {
    if (member.name == "format" || member.value.isNull())
      continue;
    if (member.name != "verbosity")
      return problem(field.name, "text.{} is not served", oneLine(member.name));
    if (Problem found = readVerbosity(field, member.value, request))
      return found;
  }
  if (!value.isObject())
    return problem(field.name, "text must be an object");
  if (value["format"].isNull())
    return std::nullopt;
  auto form = parseAnswerForm(value["format"]);
  if (!form.ok())
    return problem(field.name, "text.format: {}", form.message());
  request.form = form.take();
  return std::nullopt;
}

std::shared_ptr<TokenGuide> AnswerForms::guide(const AnswerForm &form,
                                               std::vector<int32_t> ends) {
  if (!vocabulary) {
    std::vector<std::string> texts;
    for (uint32_t id = 0; id < tokenizer.vocabSize(); ++id)
      texts.push_back(tokenizer::addedBytes(tokenizer, id));
    vocabulary = std::make_shared<const grammar::Vocabulary>(texts);
  }
  auto found = std::ranges::find(kept, form.key, &Kept::key);
  if (found != kept.end()) {
    kept.splice(kept.begin(), kept, found);
  } else {
    kept.push_front({form.key, std::make_shared<grammar::TokenGrammar>(
                                   *form.grammar, vocabulary)});
    if (kept.size() > kKeptForms)
      kept.pop_back();
  }
  std::erase_if(ends, [&](int32_t token) {
    return uint32_t(token) >= tokenizer.vocabSize();
  });
  return std::make_shared<grammar::GrammarGuide>(kept.front().grammar,
                                                 std::move(ends));
}

} // namespace tessera::serve
