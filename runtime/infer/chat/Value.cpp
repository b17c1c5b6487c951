#include "runtime/infer/chat/Value.h"
#include "runtime/data/tokenizer/Unicode.h"
#include "runtime/infer/chat/Evaluator.h"

#include <algorithm>

namespace tessera::chat {

using Kind = Value::Kind;

const Value *Dict::find(const std::string &name) const {
  auto found = indices.find(name);
  return found == indices.end() ? nullptr : &members[found->second].second;
}

void Dict::set(const std::string &name, Value value) {
  auto [place, isNew] = indices.emplace(name, members.size());
  if (isNew)
    members.emplace_back(name, std::move(value));
  else
    members[place->second].second = std::move(value);
}

Value Value::fromJson(const JsonValue &json) {
  bool flag = false;
  int64_t integer = 0;
  double number = 0;
  std::string_view text;
  if (json.get(flag))
    return flag;
  if (json.get(integer))
    return integer;
  if (json.get(number))
    return number;
  if (json.get(text))
    return std::string(text);
  if (json.isArray()) {
    List list;
    for (const JsonValue &element : json.elements())
      list.push_back(fromJson(element));
    return list;
  }
  if (!json.isObject())
    return none();
  auto dict = std::make_shared<Dict>();
  for (const auto &[name, value] : json.members())
    dict->set(name, fromJson(value));
  return dict;
}

//===--- what values cost -------------------------------------------------===//

static uint64_t saturatedSum(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

void Value::include(const Value &element) {
  if (element.is(Kind::Namespace))
    throw TemplateError{"a namespace within another value is not supported"};
  if (element.depthOf >= maxValueDepth)
    throw TemplateError{
        fmt::format("values nested more than {} deep", maxValueDepth)};
  depthOf = std::max<uint16_t>(depthOf, element.depthOf + 1);
  containedOf = saturatedSum(containedOf, element.weight());
}

Value::Value(List list, Kind kind)
    : kindOf(kind), data(std::make_shared<const List>(std::move(list))) {
  for (const Value &element : this->list())
    include(element);
}

Value::Value(std::shared_ptr<Dict> dict, Kind kind)
    : kindOf(kind), data(std::move(dict)) {
  for (const auto &[name, value] : this->dict().members) {
    include(value);
    containedOf = saturatedSum(containedOf, name.size());
  }
}

Value::Value(std::shared_ptr<const Function> function)
    : kindOf(Kind::Function), data(std::move(function)) {
  include(this->function().self);
}

uint64_t Value::weight() const {
  constexpr uint64_t own = 16;
  uint64_t inside = is(Kind::String) ? text().size() : containedOf;
  return saturatedSum(own, inside);
}

int64_t Value::integer() const {
  return is(Kind::Bool) ? static_cast<int64_t>(boolean())
                        : std::get<int64_t>(data);
}

double Value::number() const {
  return is(Kind::Float) ? std::get<double>(data)
                         : static_cast<double>(integer());
}

bool Value::truthy() const {
  switch (kindOf) {
  case Kind::Undefined:
  case Kind::None:
    return false;
  case Kind::Bool:
    return boolean();
  case Kind::Int:
    return integer() != 0;
  case Kind::Float:
    return number() != 0;
  case Kind::String:
    return !text().empty();
  case Kind::List:
  case Kind::Tuple:
    return !list().empty();
  case Kind::Dict:
    return !dict().members.empty();
  case Kind::Namespace:
  case Kind::Function:
    return true;
  }
  return false;
}

void Value::failUndefined() const {
  const auto *name = std::get_if<std::shared_ptr<const std::string>>(&data);
  throw TemplateError{name ? **name + " is undefined" : "a value is undefined"};
}

std::string_view Value::typeName() const {
  static constexpr std::string_view names[] = {
      "Undefined", "NoneType", "bool", "int",       "float",   "str",
      "list",      "tuple",    "dict", "Namespace", "function"};
  return names[static_cast<size_t>(kindOf)];
}

static bool equal(const Value &left, const Value &right, size_t depth) {
  if (depth > maxValueDepth)
    throw TemplateError{"containers nested too deeply to be compared"};
  if (left.isNumber() && right.isNumber())
    return left.is(Kind::Float) || right.is(Kind::Float)
               ? left.number() == right.number()
               : left.integer() == right.integer();
  if (left.kind() != right.kind())
    return false;
  switch (left.kind()) {
  case Kind::String:
    return left.text() == right.text();
  case Kind::List:
  case Kind::Tuple:
    return std::equal(
        left.list().begin(), left.list().end(), right.list().begin(),
        right.list().end(),
        [&](const Value &a, const Value &b) { return equal(a, b, depth + 1); });
  case Kind::Dict: {
    const auto &members = left.dict().members;
    return members.size() == right.dict().members.size() &&
           std::all_of(members.begin(), members.end(), [&](const auto &member) {
             const Value *other = right.dict().find(member.first);
             return other && equal(member.second, *other, depth + 1);
           });
  }
  case Kind::Namespace:
    return &left.dict() == &right.dict();
  case Kind::Function:
    return &left.function() == &right.function();
  default:
    return true;
  }
}

bool Value::operator==(const Value &other) const {
  return equal(*this, other, 0);
}

static int compareNested(const Value &left, const Value &right, size_t depth) {
  if (depth > maxValueDepth)
    throw TemplateError{"containers nested too deeply to be compared"};
  auto order = [](const auto &a, const auto &b) {
    return a < b ? -1 : a == b ? 0 : 1;
  };
  if (left.isNumber() && right.isNumber())
    return left.is(Kind::Float) || right.is(Kind::Float)
               ? order(left.number(), right.number())
               : order(left.integer(), right.integer());
  if (left.is(Kind::String) && right.is(Kind::String))
    return order(left.text(), right.text());
  if (left.isList() && left.kind() == right.kind()) {
    size_t common = std::min(left.list().size(), right.list().size());
    for (size_t i = 0; i < common; ++i)
      if (!(left.list()[i] == right.list()[i]))
        return compareNested(left.list()[i], right.list()[i], depth + 1);
    return order(left.list().size(), right.list().size());
  }
  if (left.is(Kind::Undefined))
    left.failUndefined();
  if (right.is(Kind::Undefined))
    right.failUndefined();
  throw TemplateError{fmt::format("{} and {} have no order", left.typeName(),
                                  right.typeName())};
}

int compare(const Value &left, const Value &right) {
  return compareNested(left, right, 0);
}

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::u32string codePoints(std::string_view text) {
  std::u32string points;
  const char *at = text.data(), *end = at + text.size();
  while (at != end) {
    tokenizer::Utf8Char c = tokenizer::decodeUtf8(at, end);
    points.push_back(c.codePoint == tokenizer::invalidCodePoint ? U'\uFFFD'
                                                                : c.codePoint);
    at += c.length;
  }
  return points;
}

std::string fromCodePoints(std::u32string_view points) {
  std::string text;
  for (char32_t point : points)
    tokenizer::appendUtf8(point, text);
  return text;
}

} // namespace tessera::chat
