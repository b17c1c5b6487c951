#include "runtime/serve/TaggedCalls.h"
#include "runtime/serve/TagPrefix.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

void skipSpace(std::string_view &text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
}

bool skip(std::string_view &text, std::string_view tag) {
  skipSpace(text);
  if (!text.starts_with(tag))
    return false;
  text.remove_prefix(tag.size());
  return true;
}

/// What precedes the tag, which is skipped.
std::optional<std::string_view> skipPast(std::string_view &text,
                                         std::string_view tag) {
  const std::size_t at = text.find(tag);
  if (at == text.npos)
    return std::nullopt;
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + tag.size());
  return before;
}

std::string_view trim(std::string_view text) {
  skipSpace(text);
  return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

/// A value may be on lines of its own.
std::string_view withoutLineEnds(std::string_view value) {
  if (value.starts_with('\n'))
    value.remove_prefix(1);
  if (value.ends_with('\n'))
    value.remove_suffix(1);
  return value;
}

std::string_view typeOf(const JsonValue &value) {
  bool isTrue = false;
  double number = 0;
  std::string_view text;
  return value.isNull()      ? "null"
         : value.get(text)   ? "string"
         : value.get(isTrue) ? "boolean"
         : value.get(number) ? "number"
         : value.isArray()   ? "array"
                             : "object";
}

/// Adds the types of a schema's values; of integers "number".
void addTypes(const JsonValue &schema, std::set<std::string_view> &types) {
  std::string_view type;
  auto add = [&](const JsonValue &each) {
    if (each.get(type))
      types.insert(type == "integer" ? "number" : type);
  };
  add(schema["type"]);
  for (const JsonValue &each : schema["type"].elements())
    add(each);
  for (const JsonValue &each : schema["enum"].elements())
    types.insert(typeOf(each));
  for (const char *name : {"anyOf", "oneOf"})
    for (const JsonValue &each : schema[name].elements())
      addTypes(each, types);
}

std::string jsonString(std::string_view text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// As JSON. What may be text is text, unless the schema has the type of the
/// JSON that is written, too.
std::string valueOf(std::string_view text, const JsonValue &schema) {
  const std::string_view value = withoutLineEnds(text);
  std::set<std::string_view> types;
  addTypes(schema, types);
  if (schema.isNull() || types == std::set<std::string_view>{"string"})
    return jsonString(value);
  const std::string_view written = trim(value);
  auto parsed = JsonValue::parse(written, "argument");
  const bool isText = !parsed.ok() || (types.contains("string") &&
                                       !types.contains(typeOf(*parsed)));
  return isText ? jsonString(value) : std::string(written);
}

} // namespace

TaggedCallReader::TaggedCallReader(const ToolFormat &format,
                                   std::span<const Tool> tools, bool onlyOne)
    : format(format), tags(*format.tagged()), tools(tools.begin(), tools.end()),
      onlyOne(onlyOne) {}

ToolPieces TaggedCallReader::push(std::string_view text) {
  ToolPieces out;
  held += text;
  while (inBlock ? takeBlock(out) : takeContent(out))
    ;
  return out;
}

ToolPieces TaggedCallReader::finish() {
  ToolPieces out;
  // White space after calls is not part of the output.
  if (count == 0 || held.find_first_not_of(kBlank) != held.npos)
    out.content = std::move(held);
  held.clear();
  return out;
}

// Up to a tag that opens a block, with the white space before it. Returns
// whether there is one.
bool TaggedCallReader::takeContent(ToolPieces &out) {
  if (onlyOne && count > 0) {
    held.clear();
    return false;
  }
  const std::size_t at = held.find(format.open);
  inBlock = at != held.npos;
  std::string_view before = std::string_view(held).substr(
      0, inBlock ? at : held.size() - tagPrefixLength(held, format.open));
  before = before.substr(0, before.find_last_not_of(kBlank) + 1);
  out.content += before;
  held.erase(0, before.size());
  searched = 0;
  return inBlock;
}

// Up to the closing tag. Returns whether it is there.
bool TaggedCallReader::takeBlock(ToolPieces &out) {
  const std::size_t at = held.find(format.close, searched);
  if (at == held.npos) {
    searched = held.size() - std::min(held.size(), format.close.size() - 1);
    return false;
  }
  const std::size_t end = at + format.close.size();
  std::string_view block = trim(std::string_view(held).substr(0, end));
  block.remove_prefix(format.open.size());
  block.remove_suffix(format.close.size());
  if (!readBlock(block, out))
    out.content += held.substr(0, end);
  held.erase(0, end);
  inBlock = false;
  return true;
}

// All calls of a block, or none.
bool TaggedCallReader::readBlock(std::string_view block, ToolPieces &out) {
  std::vector<CallPiece> calls;
  do {
    auto call = readCall(block);
    if (!call)
      return false;
    calls.push_back(std::move(*call));
    skipSpace(block);
  } while (!block.empty());
  if (onlyOne)
    calls.resize(1);
  for (CallPiece &call : calls) {
    call.index = count++;
    out.calls.push_back(std::move(call));
  }
  return true;
}

std::optional<CallPiece>
TaggedCallReader::readCall(std::string_view &text) const {
  if (!skip(text, tags.open))
    return std::nullopt;
  // Without a tag of its own the name ends where the arguments begin.
  std::optional<std::string_view> name =
      tags.nameEnd.empty() ? text.substr(0, text.find(tags.key))
                           : skipPast(text, tags.nameEnd);
  if (!name)
    return std::nullopt;
  if (tags.nameEnd.empty())
    text.remove_prefix(name->size());
  const auto tool = std::ranges::find(tools, trim(*name), &Tool::name);
  if (tool == tools.end())
    return std::nullopt;
  const JsonValue &schemas = tool->parameters["properties"];
  std::vector<std::pair<std::string, std::string>> arguments;
  while (skip(text, tags.key)) {
    auto key = skipPast(text, tags.keyEnd);
    // White space may begin a value.
    if (!key || (!tags.value.empty() && !skip(text, tags.value)))
      return std::nullopt;
    auto value = skipPast(text, tags.valueEnd);
    if (!value)
      return std::nullopt;
    // Of an argument that is written twice the last value counts.
    const std::string argument(trim(*key));
    std::erase_if(arguments,
                  [&](const auto &each) { return each.first == argument; });
    arguments.emplace_back(argument, valueOf(*value, schemas[argument]));
  }
  if (!skip(text, tags.close))
    return std::nullopt;
  std::string object;
  for (const auto &[key, value] : arguments)
    object += (object.empty() ? "" : ",") + jsonString(key) + ':' + value;
  return CallPiece{0, {}, tool->name, '{' + object + '}'};
}

std::unique_ptr<CallReader> makeCallReader(const ToolFormat &format,
                                           std::span<const Tool> tools,
                                           bool onlyOne) {
  if (format.tagged())
    return std::make_unique<TaggedCallReader>(format, tools, onlyOne);
  std::vector<std::string> names;
  names.reserve(tools.size());
  for (const Tool &tool : tools)
    names.push_back(tool.name);
  return std::make_unique<ToolCallReader>(format, std::move(names), onlyOne);
}

} // namespace tessera::serve
