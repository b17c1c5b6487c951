#include "runtime/serve/Forms.h"
#include "runtime/infer/grammar/Gbnf.h"
#include "runtime/infer/grammar/JsonSchema.h"
#include "runtime/infer/grammar/PlainTextGrammar.h"
#include "runtime/serve/ApiFields.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

// Each has up to 64 MiB of masks.
constexpr size_t kKeptForms = 16;

/// Appends a unique key of a value.
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

/// Any JSON object.
static std::shared_ptr<AnswerForm> objectForm() {
  auto form = std::make_shared<AnswerForm>();
  form->key = "object";
  form->grammar =
      std::make_shared<const grammar::Grammar>(grammar::grammarOfJsonObject());
  return form;
}

static StatusOr<std::shared_ptr<AnswerForm>>
schemaForm(const JsonValue &schema) {
  auto grammar = grammar::grammarOfJsonSchema(schema);
  if (!grammar.ok())
    return Status::error("schema: {}", grammar.message());
  auto form = std::make_shared<AnswerForm>();
  appendKey(schema, form->key);
  form->grammar = std::make_shared<const grammar::Grammar>(grammar.take());
  return form;
}

StatusOr<std::shared_ptr<const AnswerForm>>
parseAnswerForm(const JsonValue &format) {
  std::string_view type;
  if (!format["type"].get(type))
    return Status::error("type must be text, json_object or json_schema");
  if (type == "text")
    return std::shared_ptr<const AnswerForm>();
  if (type == "json_object") {
    std::shared_ptr<AnswerForm> form = objectForm();
    form->json = R"({"type":"json_object"})";
    return std::shared_ptr<const AnswerForm>(form);
  }
  if (type != "json_schema")
    return Status::error("type must be text, json_object or json_schema, got: "
                         "{}",
                         type);
  // In chats the schema is one level deeper than in responses.
  const JsonValue &holder =
      format["json_schema"].isObject() ? format["json_schema"] : format;
  const JsonValue &schema = holder["schema"];
  if (!schema.isObject())
    return Status::error("json_schema must have an object schema");
  auto form = schemaForm(schema);
  if (!form.ok())
    return form.status();
  (*form)->json = jsonOf(format);
  return std::shared_ptr<const AnswerForm>(form.take());
}

static StatusOr<std::shared_ptr<const AnswerForm>>
exactForm(std::string key, StatusOr<grammar::Grammar> grammar) {
  if (!grammar.ok())
    return grammar.status();
  auto form = std::make_shared<AnswerForm>();
  form->key = std::move(key);
  form->grammar = std::make_shared<const grammar::Grammar>(grammar.take());
  form->isExact = true;
  return std::shared_ptr<const AnswerForm>(form);
}

static StatusOr<std::shared_ptr<const AnswerForm>>
parseChoice(const JsonValue &value) {
  std::vector<std::string> choices;
  std::string key = "choice ";
  std::string_view text;
  if (!value.isArray())
    return Status::error("choice must be a list of strings");
  for (const JsonValue &each : value.elements()) {
    if (!each.get(text))
      return Status::error("choice must be a list of strings");
    choices.emplace_back(text);
  }
  appendKey(value, key);
  return exactForm(std::move(key),
                   grammar::grammarOfChoice(std::move(choices)));
}

/// A schema without `response_format`, which responses therefore do not repeat.
static StatusOr<std::shared_ptr<const AnswerForm>>
bareSchemaForm(const JsonValue &schema) {
  if (!schema.isObject())
    return Status::error("a schema must be an object, or a string of JSON");
  auto form = schemaForm(schema);
  if (!form.ok())
    return form.status();
  return std::shared_ptr<const AnswerForm>(form.take());
}

StatusOr<std::shared_ptr<const AnswerForm>>
parseTextForm(std::string_view kind, std::string_view text) {
  if (kind == "json") {
    auto schema = JsonValue::parse(text, "the schema");
    return schema.ok() ? bareSchemaForm(*schema) : schema.status();
  }
  return exactForm(fmt::format("{} {}", kind, text),
                   kind == "regex" ? grammar::grammarOfRegex(text)
                                   : grammar::grammarOfGbnf(text));
}

StatusOr<std::shared_ptr<const AnswerForm>>
parseTextForm(std::string_view kind, const JsonValue &value) {
  if (kind == "choice")
    return parseChoice(value);
  if (bool wanted = false; kind == "json_object") {
    if (!value.get(wanted) || !wanted)
      return Status::error("json_object must be true, or left out");
    return std::shared_ptr<const AnswerForm>(objectForm());
  }
  if (std::string_view text; value.get(text))
    return parseTextForm(kind, text);
  if (kind == "json")
    return bareSchemaForm(value);
  return Status::error("a {} must be a string",
                       kind == "regex" ? "regular expression" : "grammar");
}

/// Sets the structured output of the request; at most one field may set it.
static Problem takeForm(const Field &field, std::string_view name,
                        StatusOr<std::shared_ptr<const AnswerForm>> form,
                        ApiRequest &request) {
  if (!form.ok())
    return problem(field.name, "{}: {}", name, form.message());
  if (!*form)
    return std::nullopt;
  if (request.form)
    return problem(field.name, "{} and {} both request structured output",
                   request.formName, name);
  request.form = form.take();
  request.formField = field.name;
  request.formName = name;
  return std::nullopt;
}

Problem readResponseFormat(const Field &field, const JsonValue &value,
                           ApiRequest &request) {
  return takeForm(field, field.name, parseAnswerForm(value), request);
}

// The field of /v1/responses that holds its response_format.
Problem readTextFormat(const Field &field, const JsonValue &value,
                       ApiRequest &request) {
  for (const JsonValue::Member &member : value.members()) {
    if (member.name == "format" || member.value.isNull())
      continue;
    if (member.name != "verbosity")
      return problem(field.name, "text.{} is not supported",
                     oneLine(member.name));
    if (Problem found = readVerbosity(field, member.value, request))
      return found;
  }
  if (!value.isObject())
    return problem(field.name, "text must be an object");
  if (value["format"].isNull())
    return std::nullopt;
  return takeForm(field, "text.format", parseAnswerForm(value["format"]),
                  request);
}

// An extension of vLLM.
Problem readStructuredOutputs(const Field &field, const JsonValue &value,
                              ApiRequest &request) {
  static constexpr std::array<std::string_view, 5> kKinds = {
      "json", "regex", "choice", "grammar", "json_object"};
  // Switches that clients may send with their defaults.
  static constexpr std::array<std::string_view, 3> kSwitches = {
      "disable_fallback", "disable_any_whitespace",
      "disable_additional_properties"};
  if (!value.isObject())
    return problem(field.name, "{} must be an object", field.name);
  bool isGiven = false;
  for (const JsonValue::Member &member : value.members()) {
    if (member.value.isNull())
      continue;
    std::string name = fmt::format("{}.{}", field.name, oneLine(member.name));
    if (std::ranges::count(kSwitches, member.name) > 0) {
      if (bool on = true; !member.value.get(on) || on)
        return problem(field.name, "{} must be false", name);
      continue;
    }
    if (std::ranges::count(kKinds, member.name) == 0)
      return problem(field.name, "{} is not supported", name);
    if (Problem found = takeForm(
            field, name, parseTextForm(member.name, member.value), request))
      return found;
    isGiven = true;
  }
  if (!isGiven)
    return problem(field.name,
                   "{} must have one of {}; leave it out for "
                   "unconstrained output",
                   field.name, fmt::join(kKinds, ", "));
  return std::nullopt;
}

// The older guided_regex and so on of vLLM; regex and ebnf of SGLang; grammar
// of llama.cpp.
Problem readGuided(const Field &field, const JsonValue &value,
                   ApiRequest &request) {
  std::string_view kind = field.name;
  if (kind.starts_with("guided_"))
    kind.remove_prefix(std::string_view("guided_").size());
  return takeForm(field, field.name,
                  parseTextForm(kind == "ebnf" ? "grammar" : kind, value),
                  request);
}

bool AnswerForms::dropsSpace() const {
  for (uint32_t id = 0; id < tokenizer.vocabSize(); ++id) {
    std::string text = tokenizer::addedBytes(tokenizer, id);
    if (text.size() > 1 && text[0] == ' ' && isUtf8(text))
      return tokenizer::decode(tokenizer, std::span(&id, 1)).size() <
             text.size();
  }
  return false;
}

std::shared_ptr<TokenGuide> AnswerForms::guide(const AnswerForm &form,
                                               std::vector<int32_t> ends) {
  if (!vocabulary) {
    std::vector<std::string> tokens;
    for (uint32_t id = 0; id < tokenizer.vocabSize(); ++id)
      tokens.push_back(tokenizer::addedBytes(tokenizer, id));
    vocabulary = std::make_shared<const grammar::Vocabulary>(tokens);
    beginsWithSpace = dropsSpace();
  }
  auto found = std::ranges::find(kept, form.key, &Kept::key);
  if (found != kept.end()) {
    kept.splice(kept.begin(), kept, found);
  } else {
    grammar::Grammar rules = *form.grammar;
    if (form.isExact && beginsWithSpace)
      rules.beginWithSpace();
    kept.push_front({form.key, std::make_shared<grammar::TokenGrammar>(
                                   std::move(rules), vocabulary)});
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
