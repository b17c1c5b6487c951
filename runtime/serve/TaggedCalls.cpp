#include "runtime/serve/TaggedCalls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

using Arguments = nlohmann::ordered_json;

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

/// Whether a schema's values are text: then they are not read as JSON.
bool isText(const JsonValue &schema) {
  std::string_view type;
  if (schema["type"].get(type))
    return type == "string";
  const JsonValue::Array &values = schema["enum"].elements();
  return !values.empty() && std::ranges::all_of(values, [&](const auto &each) {
    return each.get(type);
  });
}

Arguments valueOf(std::string_view text, const JsonValue &schema) {
  const std::string_view value = withoutLineEnds(text);
  if (!schema.isNull() && !isText(schema)) {
    auto parsed = Arguments::parse(trim(value), nullptr, /*exceptions=*/false);
    if (!parsed.is_discarded())
      return parsed;
  }
  return value;
}

std::string print(const Arguments &json) {
  return json.dump(-1, ' ', false, Arguments::error_handler_t::replace);
}

} // namespace

TaggedCallReader::TaggedCallReader(const ToolFormat &format,
                                   std::span<const Tool> tools, bool onlyOne)
    : format(format), tags(*format.tagged), tools(tools.begin(), tools.end()),
      onlyOne(onlyOne) {}

// Of a prefix of the tag that ends the text: bytes.
static std::size_t prefixAtEnd(std::string_view text, std::string_view tag) {
  std::size_t length = std::min(tag.size() - 1, text.size());
  while (!tag.starts_with(text.substr(text.size() - length)))
    --length;
  return length;
}

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
      0, inBlock ? at : held.size() - prefixAtEnd(held, format.open));
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
  Arguments arguments = Arguments::object();
  while (skip(text, tags.key)) {
    auto key = skipPast(text, tags.keyEnd);
    if (!key || !skip(text, tags.value))
      return std::nullopt;
    auto value = skipPast(text, tags.valueEnd);
    if (!value)
      return std::nullopt;
    const std::string name(trim(*key));
    arguments[name] = valueOf(*value, schemas[name]);
  }
  if (!skip(text, tags.close))
    return std::nullopt;
  return CallPiece{0, {}, tool->name, print(arguments)};
}

std::unique_ptr<CallReader> makeCallReader(const ToolFormat &format,
                                           std::span<const Tool> tools,
                                           bool onlyOne) {
  if (format.tagged)
    return std::make_unique<TaggedCallReader>(format, tools, onlyOne);
  std::vector<std::string> names;
  names.reserve(tools.size());
  for (const Tool &tool : tools)
    names.push_back(tool.name);
  return std::make_unique<ToolCallReader>(format, std::move(names), onlyOne);
}

} // namespace tessera::serve
