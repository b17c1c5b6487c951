// Values as text: str, repr and json.dumps.
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/infer/chat/Value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace tessera::chat {

using Kind = Value::Kind;

/// repr(float): the shortest digits that read back the same, with an exponent
/// below 1e-4 and from 1e16 on.
static std::string floatText(double value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value < 0 ? "-inf" : "inf";
  double size = std::fabs(value);
  bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  char buffer[64];
  auto [end, code] = std::to_chars(buffer, std::end(buffer), value,
                                   scientific ? std::chars_format::scientific
                                              : std::chars_format::fixed);
  std::string text(buffer, end);
  if (!scientific && text.find('.') == text.npos)
    text += ".0";
  return text;
}

static void appendQuoted(std::string_view text, std::string &out) {
  char quote =
      text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  out.push_back(quote);
  for (char32_t c : codePoints(text)) {
    std::string_view category =
        tokenizer::categoryNames[tokenizer::generalCategory(c)];
    if (c == U'\n')
      out += "\\n";
    else if (c == U'\r')
      out += "\\r";
    else if (c == U'\t')
      out += "\\t";
    else if (c == U'\\' || c == static_cast<char32_t>(quote))
      out.append("\\").push_back(static_cast<char>(c));
    else if (c != U' ' && (category[0] == 'C' || category[0] == 'Z'))
      out += c < 0x100     ? fmt::format("\\x{:02x}", uint32_t{c})
             : c < 0x10000 ? fmt::format("\\u{:04x}", uint32_t{c})
                           : fmt::format("\\U{:08x}", uint32_t{c});
    else
      tokenizer::appendUtf8(c, out);
  }
  out.push_back(quote);
}

static void appendRepr(const Value &value, size_t depth, std::string &out) {
  if (depth > maxValueDepth)
    throw TemplateError{"containers nested too deeply to be printed"};
  switch (value.kind()) {
  case Kind::Undefined:
    out += "Undefined";
    return;
  case Kind::None:
    out += "None";
    return;
  case Kind::Bool:
    out += value.boolean() ? "True" : "False";
    return;
  case Kind::Int:
    out += std::to_string(value.integer());
    return;
  case Kind::Float:
    out += floatText(value.number());
    return;
  case Kind::String:
    return appendQuoted(value.text(), out);
  case Kind::List:
  case Kind::Tuple: {
    bool tuple = value.is(Kind::Tuple);
    out.push_back(tuple ? '(' : '[');
    for (size_t i = 0; i < value.list().size(); ++i) {
      out += i == 0 ? "" : ", ";
      appendRepr(value.list()[i], depth + 1, out);
    }
    out += tuple && value.list().size() == 1 ? "," : "";
    out.push_back(tuple ? ')' : ']');
    return;
  }
  case Kind::Dict: {
    out.push_back('{');
    bool first = true;
    for (const auto &[name, member] : value.dict().members) {
      out += std::exchange(first, false) ? "" : ", ";
      appendQuoted(name, out);
      out += ": ";
      appendRepr(member, depth + 1, out);
    }
    out.push_back('}');
    return;
  }
  case Kind::Namespace:
  case Kind::Function:
    throw TemplateError{
        fmt::format("a {} cannot be printed", value.typeName())};
  }
}

std::string toRepr(const Value &value) {
  std::string out;
  appendRepr(value, 0, out);
  return out;
}

std::string toText(const Value &value) {
  if (value.is(Kind::String))
    return value.text();
  return value.is(Kind::Undefined) ? std::string() : toRepr(value);
}

static void appendJsonString(std::string_view text, bool ascii,
                             std::string &out) {
  out.push_back('"');
  for (char32_t c : codePoints(text)) {
    static constexpr std::u32string_view special = U"\"\\\n\r\t\b\f";
    size_t place = special.find(c);
    if (place != special.npos)
      out.append("\\").push_back("\"\\nrtbf"[place]);
    else if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000))
      out += fmt::format("\\u{:04x}", uint32_t{c});
    else if (ascii && c >= 0x10000)
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0 + (uint32_t{c} >> 10),
                         0xDC00 + (uint32_t{c} & 0x3FF));
    else
      tokenizer::appendUtf8(c, out);
  }
  out.push_back('"');
}

namespace {
class JsonPrinter {
public:
  explicit JsonPrinter(const JsonStyle &style) : style(style) {}
  void print(const Value &value, size_t depth);
  std::string out;

private:
  void newLine(size_t depth) {
    if (style.indent >= 0)
      out.append("\n").append(depth * static_cast<size_t>(style.indent), ' ');
  }
  void printDict(const Dict &dict, size_t depth);
  const JsonStyle &style;
};
} // namespace

void JsonPrinter::printDict(const Dict &dict, size_t depth) {
  if (dict.members.empty()) {
    out += "{}";
    return;
  }
  std::vector<const std::pair<std::string, Value> *> members;
  for (const auto &member : dict.members)
    members.push_back(&member);
  if (style.sortKeys)
    std::sort(members.begin(), members.end(),
              [](auto *a, auto *b) { return a->first < b->first; });
  out.push_back('{');
  for (size_t i = 0; i < members.size(); ++i) {
    out += i == 0 ? "" : style.itemSeparator;
    newLine(depth + 1);
    appendJsonString(members[i]->first, style.ascii, out);
    out += style.keySeparator;
    print(members[i]->second, depth + 1);
  }
  newLine(depth);
  out.push_back('}');
}

void JsonPrinter::print(const Value &value, size_t depth) {
  if (depth > maxValueDepth)
    throw TemplateError{"containers nested too deeply to be printed"};
  switch (value.kind()) {
  case Kind::None:
    out += "null";
    return;
  case Kind::Bool:
    out += value.boolean() ? "true" : "false";
    return;
  case Kind::Int:
    out += std::to_string(value.integer());
    return;
  case Kind::Float: {
    std::string text = floatText(value.number());
    out += text == "nan"    ? "NaN"
           : text == "inf"  ? "Infinity"
           : text == "-inf" ? "-Infinity"
                            : text;
    return;
  }
  case Kind::String:
    return appendJsonString(value.text(), style.ascii, out);
  case Kind::List:
  case Kind::Tuple: {
    if (value.list().empty()) {
      out += "[]";
      return;
    }
    out.push_back('[');
    for (size_t i = 0; i < value.list().size(); ++i) {
      out += i == 0 ? "" : style.itemSeparator;
      newLine(depth + 1);
      print(value.list()[i], depth + 1);
    }
    newLine(depth);
    out.push_back(']');
    return;
  }
  case Kind::Dict:
    return printDict(value.dict(), depth);
  case Kind::Undefined:
    value.failUndefined();
  default:
    throw TemplateError{
        fmt::format("a {} cannot be written as JSON", value.typeName())};
  }
}

std::string toJson(const Value &value, const JsonStyle &style) {
  JsonPrinter printer(style);
  printer.print(value, 0);
  return std::move(printer.out);
}

} // namespace tessera::chat
