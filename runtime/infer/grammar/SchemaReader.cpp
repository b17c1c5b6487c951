#include "runtime/infer/grammar/SchemaReader.h"
#include "runtime/infer/grammar/NumberRange.h"

#include <algorithm>
#include <array>
#include <set>

#include <nlohmann/json.hpp>

namespace tessera::grammar {

bool has(const JsonValue &schema, std::string_view name) {
  return std::ranges::any_of(schema.members(), [&](const auto &member) {
    return member.name == name;
  });
}

namespace {

std::string scalarText(const JsonValue &value) {
  bool truth;
  uint64_t natural;
  int64_t whole;
  double real;
  std::string_view text;
  if (value.get(truth))
    return truth ? "true" : "false";
  if (value.get(natural))
    return fmt::format("{}", natural);
  if (value.get(whole))
    return fmt::format("{}", whole);
  if (value.get(real))
    return nlohmann::json(real).dump();
  if (value.get(text))
    return quotedJson(text);
  return "null";
}

/// Keywords without a constraint, or read through a $ref.
constexpr std::array<std::string_view, 13> kReadOver = {
    "title",   "description", "default",   "examples", "deprecated",
    "$schema", "readOnly",    "writeOnly", "format",   "$comment",
    "$defs",   "definitions", "$id"};

constexpr std::array<std::string_view, 7> kTypes = {
    "object", "array", "string", "number", "integer", "boolean", "null"};

constexpr std::array<std::string_view, 4> kBounds = {
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};

} // namespace

StatusOr<uint32_t> SchemaReader::addTo(uint32_t from) {
  StatusOr<uint32_t> rule = ruleOf({root, "#"});
  if (!rule.ok())
    return rule.status();
  uint32_t end = grammar.addNode();
  grammar.addCall(from, *rule, end);
  // Define the rules that were referred to, which may refer to others.
  while (!pending.empty()) {
    auto [schema, path, rule] = pending.back();
    pending.pop_back();
    TESSERA_RETURN_IF_ERROR(define({*schema, path}, rule));
    if (grammar.isFull())
      break; // finish() reports it
  }
  return end;
}

SchemaReader::Rule SchemaReader::ruleOf(const SchemaPlace &place) {
  auto [found, isNew] = rules.try_emplace(&place.schema, 0);
  if (isNew) {
    found->second = grammar.addRule();
    // The beginning of a long path says enough.
    pending.push_back(
        {&place.schema,
         place.path.size() > 300 ? place.path.substr(0, 300) + "…" : place.path,
         found->second});
  }
  return found->second;
}

//===--- one schema -------------------------------------------------------===//

Status SchemaReader::checkKeywords(const SchemaPlace &place) const {
  static constexpr std::array<std::string_view, 20> kServed = {
      "type",
      "properties",
      "required",
      "additionalProperties",
      "items",
      "minItems",
      "maxItems",
      "prefixItems",
      "minLength",
      "maxLength",
      "pattern",
      "enum",
      "const",
      "anyOf",
      "allOf",
      "$ref",
      "minimum",
      "maximum",
      "exclusiveMinimum",
      "exclusiveMaximum"};
  for (const auto &[name, value] : place.schema.members())
    if (std::ranges::find(kServed, name) == kServed.end() &&
        std::ranges::find(kReadOver, name) == kReadOver.end())
      return problem(place, "the keyword \"{}\" is not supported", name);
  // Keywords next to these would have to hold as well.
  for (std::string_view alone : {"$ref", "anyOf", "allOf", "enum", "const"}) {
    if (!has(place.schema, alone))
      continue;
    for (const auto &[name, value] : place.schema.members()) {
      bool literal = alone == "enum" || alone == "const";
      if (name != alone && !(literal && name == "type") &&
          std::ranges::find(kReadOver, name) == kReadOver.end())
        return problem(place, "\"{}\" next to \"{}\" is not supported", name,
                       alone);
    }
  }
  return Status::success();
}

Status SchemaReader::define(const SchemaPlace &place, uint32_t rule) {
  uint32_t from = grammar.startOf(rule), to = grammar.addNode();
  grammar.setFinal(to);
  const JsonValue &schema = place.schema;
  bool truth = false;
  if (schema.get(truth) && truth) {
    grammar.addCall(from, json.anyValue(), to);
    return Status::success();
  }
  if (!schema.isObject())
    return problem(place, "a schema must be an object or true");
  TESSERA_RETURN_IF_ERROR(checkKeywords(place));
  std::string_view pointer;
  if (has(schema, "$ref")) {
    if (!schema["$ref"].get(pointer))
      return problem(place, "\"$ref\" must be a string");
    auto target = referred(place, pointer);
    if (target.ok())
      grammar.addCall(from, *target, to);
    return target.status();
  }
  for (std::string_view keyword : {"anyOf", "allOf"})
    if (has(schema, keyword))
      return addAlternatives(place, keyword, from, to);
  if (has(schema, "enum") || has(schema, "const"))
    return addLiterals(place, from, to);
  return defineTypes(place, from, to);
}

Status SchemaReader::addAlternatives(const SchemaPlace &place,
                                     std::string_view keyword, uint32_t from,
                                     uint32_t to) {
  const auto &alternatives = place.schema[keyword].elements();
  if (alternatives.empty())
    return problem(place, "\"{}\" must be a list of schemas", keyword);
  if (keyword == "allOf" && alternatives.size() != 1)
    return problem(place, "\"allOf\" of several schemas is not supported");
  for (size_t i = 0; i < alternatives.size(); ++i) {
    Rule rule = ruleOf(
        {alternatives[i], fmt::format("{}/{}/{}", place.path, keyword, i)});
    if (!rule.ok())
      return rule.status();
    grammar.addCall(from, *rule, to);
  }
  return Status::success();
}

/// Whether the value has one of the types, if there are any.
static bool isOfType(const JsonValue &value, const JsonValue &asked) {
  if (asked.isNull())
    return true;
  bool truth;
  int64_t whole;
  double real;
  std::string_view text, name;
  auto is = [&](const JsonValue &type) {
    return type.get(name) && ((name == "object" && value.isObject()) ||
                              (name == "array" && value.isArray()) ||
                              (name == "string" && value.get(text)) ||
                              (name == "boolean" && value.get(truth)) ||
                              (name == "number" && value.get(real)) ||
                              (name == "integer" && value.get(whole)) ||
                              (name == "null" && value.isNull()));
  };
  return is(asked) || std::ranges::any_of(asked.elements(), is);
}

Status SchemaReader::addLiterals(const SchemaPlace &place, uint32_t from,
                                 uint32_t to) {
  std::vector<std::string> scalars;
  std::vector<const JsonValue *> values;
  if (has(place.schema, "const"))
    values.push_back(&place.schema["const"]);
  for (const JsonValue &value : place.schema["enum"].elements())
    values.push_back(&value);
  if (values.empty())
    return problem(place, "\"enum\" must be a list of values");
  for (const JsonValue *value : values)
    if (!isOfType(*value, place.schema["type"]))
      return problem(place, "a value of \"enum\" or \"const\" is not of "
                            "\"type\"");
    else if (value->isArray() || value->isObject())
      grammar.addSkip(addLiteral(*value, from), to);
    else
      scalars.push_back(scalarText(*value));
  grammar.addSkip(json.oneOf(from, std::move(scalars)), to);
  return Status::success();
}

/// The value itself, with optional space where JSON allows it.
uint32_t SchemaReader::addLiteral(const JsonValue &value, uint32_t from) {
  if (!value.isArray() && !value.isObject())
    return grammar.addText(from, scalarText(value));
  uint32_t at = grammar.addText(from, value.isArray() ? "[" : "{");
  bool first = true;
  auto separate = [&] {
    at = json.space(first ? at : grammar.addText(at, ","));
    first = false;
  };
  for (const JsonValue &each : value.elements()) {
    separate();
    at = addLiteral(each, at);
  }
  for (const auto &[name, member] : value.members()) {
    separate();
    at = grammar.addText(grammar.addText(at, quotedJson(name)), ":");
    at = addLiteral(member, json.space(at));
  }
  return grammar.addText(first ? at : json.space(at),
                         value.isArray() ? "]" : "}");
}

// Without "type", the type that the keywords are about. JSON Schema would allow
// all other types as well, but schemas rarely mean that.
Status SchemaReader::defineTypes(const SchemaPlace &place, uint32_t from,
                                 uint32_t to) {
  const JsonValue &schema = place.schema, &type = schema["type"];
  std::string_view name;
  if (type.get(name))
    return addType(place, name, from, to);
  if (type.isArray() && !type.elements().empty()) {
    std::set<std::string_view> seen;
    for (const JsonValue &each : type.elements()) {
      if (!each.get(name))
        return problem(place, "\"type\" must be a name or a list of names");
      if (!seen.insert(name).second)
        return problem(place, "duplicate type \"{}\"", name);
      TESSERA_RETURN_IF_ERROR(addType(place, name, from, to));
    }
    return Status::success();
  }
  if (has(schema, "type"))
    return problem(place, "\"type\" must be a name or a list of names");
  for (std::string_view keyword :
       {"properties", "required", "additionalProperties"})
    if (has(schema, keyword))
      return addObject(place, from, to);
  for (std::string_view keyword :
       {"items", "prefixItems", "minItems", "maxItems"})
    if (has(schema, keyword))
      return addArray(place, from, to);
  for (std::string_view keyword : {"minLength", "maxLength", "pattern"})
    if (has(schema, keyword))
      return addString(place, from, to);
  for (std::string_view keyword : kBounds)
    if (has(schema, keyword))
      return addNumber(place, from, to);
  grammar.addCall(from, json.anyValue(), to);
  return Status::success();
}

Status SchemaReader::checkList(const SchemaPlace &place,
                               std::string_view keyword) const {
  if (has(place.schema, keyword) && !place.schema[keyword].isArray())
    return problem(place, "\"{}\" must be a list", keyword);
  return Status::success();
}

Status SchemaReader::addType(const SchemaPlace &place, std::string_view type,
                             uint32_t from, uint32_t to) {
  if (type == "object")
    return addObject(place, from, to);
  if (type == "array")
    return addArray(place, from, to);
  if (type == "string")
    return addString(place, from, to);
  bool bounded = std::ranges::any_of(kBounds, [&](std::string_view bound) {
    return has(place.schema, bound);
  });
  if (type == "integer" && bounded)
    return addInteger(place, from, to);
  if (type == "number" && bounded)
    return addNumber(place, from, to);
  if (std::ranges::find(kTypes, type) == kTypes.end())
    return problem(place, "unknown type \"{}\"", type);
  grammar.addCall(from,
                  type == "number"    ? json.number()
                  : type == "integer" ? json.integer()
                  : type == "boolean" ? json.boolean()
                                      : json.null(),
                  to);
  return Status::success();
}

StatusOr<std::optional<uint64_t>>
SchemaReader::count(const SchemaPlace &place, std::string_view keyword) const {
  if (!has(place.schema, keyword))
    return std::optional<uint64_t>();
  uint64_t value = 0;
  if (!place.schema[keyword].get(value) || value > Grammar::kMaxNodes)
    return problem(place, "\"{}\" must be a whole number from 0 to {}", keyword,
                   Grammar::kMaxNodes);
  return std::optional(value);
}

Status SchemaReader::addInteger(const SchemaPlace &place, uint32_t from,
                                uint32_t to) {
  std::optional<int64_t> least, most;
  for (std::string_view bound : kBounds) {
    int64_t value = 0;
    if (!has(place.schema, bound))
      continue;
    // One value of room, so that an exclusive bound has a neighbour.
    if (!place.schema[bound].get(value) || value == INT64_MIN ||
        value == INT64_MAX)
      return problem(place, "\"{}\" must be an integer of 64 bits", bound);
    if (bound == "minimum" || bound == "exclusiveMinimum")
      least = std::max(least.value_or(INT64_MIN), value + (bound != "minimum"));
    else
      most = std::min(most.value_or(INT64_MAX), value - (bound != "maximum"));
  }
  if (least && most && *most < *least)
    return problem(place, "no integer is within the bounds");
  grammar.addSkip(json.integerWithin(from, least, most), to);
  return Status::success();
}

Status SchemaReader::addNumber(const SchemaPlace &place, uint32_t from,
                               uint32_t to) {
  NumberRange range;
  for (std::string_view keyword : kBounds) {
    if (!has(place.schema, keyword))
      continue;
    NumberRange::Bound bound;
    if (!place.schema[keyword].get(bound.value))
      return problem(place, "\"{}\" must be a number", keyword);
    bound.isExcluded = keyword.starts_with("exclusive");
    if (keyword.ends_with("inimum"))
      range.raiseLeast(bound);
    else
      range.lowerMost(bound);
  }
  auto end = addNumberWithin(grammar, json, from, range);
  if (!end.ok())
    return problem(place, "{}", end.message());
  grammar.addSkip(*end, to);
  return Status::success();
}

Status SchemaReader::addPattern(const SchemaPlace &place, uint32_t from,
                                uint32_t to) {
  std::string_view pattern;
  if (!place.schema["pattern"].get(pattern))
    return problem(place, "\"pattern\" must be a string");
  for (std::string_view other : {"minLength", "maxLength"})
    if (has(place.schema, other))
      return problem(place, "\"{}\" next to \"pattern\" is not supported",
                     other);
  auto end = patterns.add(from, pattern);
  if (!end.ok())
    return problem(place, "{}", end.message());
  grammar.addSkip(*end, to);
  return Status::success();
}

Status SchemaReader::addString(const SchemaPlace &place, uint32_t from,
                               uint32_t to) {
  if (has(place.schema, "pattern"))
    return addPattern(place, from, to);
  auto least = count(place, "minLength"), most = count(place, "maxLength");
  for (const auto *each : {&least, &most})
    if (!each->ok())
      return each->status();
  if (!*least && !*most) {
    std::string_view format;
    std::optional<std::string> pattern;
    if (place.schema["format"].get(format))
      pattern = StringPattern::ofFormat(format);
    if (pattern)
      grammar.addSkip(*patterns.add(from, *pattern), to);
    else
      grammar.addCall(from, json.string(), to);
    return Status::success();
  }
  uint64_t first = least->value_or(0);
  if (*most && **most < first)
    return problem(place, "\"maxLength\" is below \"minLength\"");
  uint32_t at = grammar.addText(from, "\"");
  for (uint64_t i = 0; i < most->value_or(first) && !grammar.isFull(); ++i) {
    if (i >= first)
      grammar.addBytes(at, '"', '"', to);
    uint32_t next = grammar.addNode();
    grammar.addCall(at, json.character(), next);
    at = next;
  }
  if (!*most)
    grammar.addCall(at, json.character(), at);
  grammar.addBytes(at, '"', '"', to);
  return Status::success();
}

} // namespace tessera::grammar
