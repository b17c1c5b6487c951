#include "runtime/infer/grammar/SchemaReader.h"

#include <algorithm>
#include <set>

namespace tessera::grammar {

//===--- nesting ----------------------------------------------------------===//

/// The rule for the rest of an array or object; without the keyword any value.
SchemaReader::Rule SchemaReader::ruleOfRest(const SchemaPlace &place,
                                            std::string_view keyword,
                                            bool &allowed) {
  allowed = true;
  if (!has(place.schema, keyword))
    return json.anyValue();
  const JsonValue &rest = place.schema[keyword];
  if (bool truth = false; rest.get(truth) && !truth) {
    allowed = false;
    return json.null(); // which is unused
  }
  return ruleOf({rest, fmt::format("{}/{}", place.path, keyword)});
}

Status SchemaReader::addArray(const SchemaPlace &place, uint32_t from,
                              uint32_t to) {
  auto least = count(place, "minItems"), most = count(place, "maxItems");
  for (const auto *each : {&least, &most})
    if (!each->ok())
      return each->status();
  TESSERA_RETURN_IF_ERROR(checkList(place, "prefixItems"));
  const auto &prefix = place.schema["prefixItems"].elements();
  bool more = true;
  Rule rest = ruleOfRest(place, "items", more);
  if (!rest.ok())
    return rest.status();
  uint64_t first = least->value_or(0);
  uint64_t last = most->value_or(std::max<uint64_t>(first, prefix.size()));
  if (!more)
    last = std::min<uint64_t>(last, prefix.size());
  if (last < first)
    return problem(place, "an array of {} items at least cannot be", first);
  bool endless = more && !*most;

  uint32_t open = json.space(grammar.addText(from, "["));
  uint32_t at = open; // before the comma, if an element precedes it
  auto close = [&](uint32_t node) {
    grammar.addBytes(node == open ? node : json.space(node), ']', ']', to);
  };
  auto element = [&](uint32_t node, uint32_t rule, uint32_t next) {
    uint32_t begin =
        node == open ? node : json.space(grammar.addText(node, ","));
    grammar.addCall(begin, rule, next);
  };
  for (uint64_t i = 0; i < last && !grammar.isFull(); ++i) {
    if (i >= first)
      close(at);
    Rule rule = i < prefix.size()
                    ? ruleOf({prefix[i],
                              fmt::format("{}/prefixItems/{}", place.path, i)})
                    : rest;
    if (!rule.ok())
      return rule.status();
    uint32_t next = grammar.addNode();
    element(at, *rule, next);
    at = next;
  }
  if (endless) {
    uint32_t next = at == open ? grammar.addNode() : at;
    element(at, *rest, next);
    if (at == open)
      element(next, *rest, next);
    close(next);
    if (at == open)
      close(open);
    return Status::success();
  }
  close(at);
  return Status::success();
}

Status SchemaReader::addObject(const SchemaPlace &place, uint32_t from,
                               uint32_t to) {
  const JsonValue &properties = place.schema["properties"];
  if (has(place.schema, "properties") && !properties.isObject())
    return problem(place, "\"properties\" must be an object");
  std::set<std::string, std::less<>> names, required;
  for (const auto &[name, schema] : properties.members())
    if (!names.insert(name).second)
      return problem(place, "duplicate property \"{}\"", name);
  TESSERA_RETURN_IF_ERROR(checkList(place, "required"));
  for (const JsonValue &each : place.schema["required"].elements()) {
    std::string_view name;
    if (!each.get(name))
      return problem(place, "\"required\" must be a list of names");
    if (!names.contains(name))
      return problem(place,
                     "\"required\" names \"{}\", which is none of "
                     "\"properties\"",
                     name);
    required.emplace(name);
  }
  bool more = true;
  Rule rest = ruleOfRest(place, "additionalProperties", more);
  if (!rest.ok())
    return rest.status();

  // `none`: no member was written yet; `some`: a comma comes first.
  uint32_t none = json.space(grammar.addText(from, "{"));
  uint32_t some = grammar.addNode();
  bool canBeEmpty = true, canHaveSome = false;
  auto begin = [&](uint32_t name) {
    if (canBeEmpty)
      grammar.addSkip(none, name);
    if (canHaveSome)
      grammar.addSkip(json.space(grammar.addText(some, ",")), name);
  };
  for (const auto &[name, schema] : properties.members()) {
    Rule rule =
        ruleOf({schema, fmt::format("{}/properties/{}", place.path, name)});
    if (!rule.ok())
      return rule.status();
    uint32_t start = grammar.addNode(), next = grammar.addNode();
    begin(start);
    uint32_t colon =
        grammar.addText(grammar.addText(start, quotedJson(name)), ":");
    grammar.addCall(json.space(colon), *rule, next);
    if (required.contains(name))
      canBeEmpty = false;
    else if (canHaveSome)
      grammar.addSkip(some, next);
    some = next;
    canHaveSome = true;
  }
  if (more) {
    uint32_t start = grammar.addNode(), next = grammar.addNode();
    begin(start);
    uint32_t colon = grammar.addText(json.otherName(start, names), ":");
    grammar.addCall(json.space(colon), *rest, next);
    grammar.addSkip(json.space(grammar.addText(next, ",")), start);
    if (canHaveSome)
      grammar.addSkip(some, next);
    some = next;
    canHaveSome = true;
  }
  if (canBeEmpty)
    grammar.addBytes(none, '}', '}', to);
  if (canHaveSome)
    grammar.addBytes(json.space(some), '}', '}', to);
  return Status::success();
}

//===--- references -------------------------------------------------------===//

/// A name in a JSON pointer (RFC 6901).
static std::string unescaped(std::string_view part) {
  std::string out;
  for (size_t i = 0; i < part.size(); ++i) {
    bool escape = part[i] == '~' && i + 1 < part.size();
    if (escape && (part[i + 1] == '0' || part[i + 1] == '1'))
      out += part[++i] == '0' ? '~' : '/';
    else
      out += part[i];
  }
  return out;
}

StatusOr<uint32_t> SchemaReader::referred(const SchemaPlace &place,
                                          std::string_view pointer) {
  const JsonValue *at = &root;
  std::string_view left = pointer;
  if (!left.starts_with('#') || (left.size() > 1 && left[1] != '/'))
    return problem(place, "\"$ref\" must point into the schema itself, such as "
                          "\"#/$defs/name\"");
  left.remove_prefix(1);
  while (!left.empty()) {
    left.remove_prefix(1);
    size_t end = std::min(left.find('/'), left.size());
    std::string name = unescaped(left.substr(0, end));
    if (!at->isObject() || !has(*at, name))
      return problem(place, "\"$ref\" points to \"{}\", which does not exist",
                     pointer);
    at = &(*at)[name];
    left.remove_prefix(end);
  }
  return ruleOf({*at, std::string(pointer)});
}

} // namespace tessera::grammar
