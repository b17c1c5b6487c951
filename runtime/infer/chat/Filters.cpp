// Jinja's filters, as far as models' templates use them: of strings, numbers
// and any value. ListFilters.cpp has those of lists.
#include "runtime/infer/chat/FilterCall.h"
#include "runtime/infer/chat/Strings.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tessera::chat {

using Kind = Value::Kind;

static Value toJsonFilter(const FilterCall &call) {
  JsonStyle style;
  style.ascii = call.flag(0, "ensure_ascii");
  style.sortKeys = call.flag(3, "sort_keys");
  const Value *indent = call.find(1, "indent");
  if (indent && !indent->is(Kind::None)) {
    style.indent = std::clamp<int64_t>(call.integer(1, "indent", 0), 0, 100);
    style.itemSeparator = ",";
  }
  const Value *separators = call.find(2, "separators");
  if (separators && !separators->is(Kind::None)) {
    if (!separators->isList() || separators->list().size() != 2)
      call.fail("needs two separators");
    style.itemSeparator = call.evaluator.text(separators->list()[0]);
    style.keySeparator = call.evaluator.text(separators->list()[1]);
  }
  // Each of its values may be on a line of its own.
  uint64_t values = call.input.weight() / 16;
  uint64_t around = style.itemSeparator.size() + style.keySeparator.size();
  if (style.indent > 0)
    around += static_cast<uint64_t>(style.indent) * call.input.depth();
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(values, around, &bytes) ||
      __builtin_add_overflow(bytes, call.input.weight(), &bytes))
    bytes = INT64_MAX;
  call.evaluator.chargeBytes(bytes);
  return call.evaluator.make(toJson(call.input, style));
}

static Value lengthFilter(const FilterCall &call) {
  switch (call.input.kind()) {
  case Kind::Undefined:
    return int64_t{0};
  case Kind::String:
    call.evaluator.chargeBytes(call.input.text().size());
    return static_cast<int64_t>(codePoints(call.input.text()).size());
  case Kind::List:
  case Kind::Tuple:
    return static_cast<int64_t>(call.input.list().size());
  case Kind::Dict:
    return static_cast<int64_t>(call.input.dict().members.size());
  default:
    call.fail(
        fmt::format("needs a container, not a {}", call.input.typeName()));
  }
}

static Value defaultFilter(const FilterCall &call) {
  bool replaces = call.input.is(Kind::Undefined) ||
                  (call.flag(1, "boolean") && !call.input.truthy());
  if (!replaces)
    return call.input;
  const Value *otherwise = call.find(0, "default_value");
  return otherwise ? *otherwise : Value(std::string());
}

static Value intFilter(const FilterCall &call) {
  if (call.input.is(Kind::Undefined))
    call.input.failUndefined();
  int64_t otherwise = call.integer(0, "default", 0);
  if (call.input.is(Kind::Float)) {
    double whole = std::trunc(call.input.number());
    if (!(std::fabs(whole) < 9e18))
      return otherwise;
    return static_cast<int64_t>(whole);
  }
  if (call.input.isNumber())
    return call.input.integer();
  if (!call.input.is(Kind::String))
    return otherwise;
  std::string text(strippedText(call.input.text(), {}, true, true));
  std::string_view digits = text;
  if (digits.starts_with('+'))
    digits.remove_prefix(1);
  int64_t value = 0;
  const char *stop = digits.data() + digits.size();
  auto [end, code] = std::from_chars(digits.data(), stop, value);
  if (code == std::errc() && end == stop)
    return value;
  double real = 0;
  auto [realEnd, realCode] = std::from_chars(digits.data(), stop, real);
  if (realCode == std::errc() && realEnd == stop && std::fabs(real) < 9e18)
    return static_cast<int64_t>(real);
  return otherwise;
}

static Value floatFilter(const FilterCall &call) {
  if (call.input.is(Kind::Undefined))
    call.input.failUndefined();
  if (call.input.isNumber())
    return call.input.number();
  double value = 0;
  const Value *otherwise = call.find(0, "default");
  if (call.input.is(Kind::String)) {
    std::string text(strippedText(call.input.text(), {}, true, true));
    auto [end, code] =
        std::from_chars(text.data(), text.data() + text.size(), value);
    if (code == std::errc() && end == text.data() + text.size())
      return value;
  }
  return otherwise ? *otherwise : Value(0.0);
}

static Value roundFilter(const FilterCall &call) {
  if (!call.input.isNumber())
    call.fail("needs a number");
  int64_t precision =
      std::clamp<int64_t>(call.integer(0, "precision", 0), -300, 300);
  std::string method = call.text(1, "method", "common");
  if (method == "common" && !call.input.is(Kind::Float) && precision >= 0)
    return call.input.integer();
  double scale = std::pow(10.0, static_cast<double>(precision));
  double value = call.input.number() * scale;
  if (method == "common")
    value = std::nearbyint(value); // halves to even, as in Python
  else if (method == "ceil")
    value = std::ceil(value);
  else if (method == "floor")
    value = std::floor(value);
  else
    call.fail("supports the methods common, ceil and floor");
  return value / scale;
}

static Value absFilter(const FilterCall &call) {
  if (!call.input.isNumber())
    call.fail("needs a number");
  if (call.input.is(Kind::Float))
    return std::fabs(call.input.number());
  if (call.input.integer() == INT64_MIN)
    call.fail("has a number that is too large");
  return std::abs(call.input.integer());
}

static Value indentFilter(const FilterCall &call) {
  if (!call.input.is(Kind::String))
    call.fail(fmt::format("needs a string, not a {}", call.input.typeName()));
  const Value *width = call.find(0, "width");
  std::string space =
      width && width->is(Kind::String)
          ? width->text()
          : std::string(static_cast<size_t>(std::clamp<int64_t>(
                            call.integer(0, "width", 4), 0, 1000)),
                        ' ');
  bool first = call.flag(1, "first"), blank = call.flag(2, "blank");
  std::string out;
  call.evaluator.chargeBytes(call.input.text().size() * 8);
  std::vector<std::string> lines = splitLines(call.input.text() + "\n");
  for (size_t i = 0; i < lines.size(); ++i) {
    out += i == 0 ? "" : "\n";
    if (i == 0 ? first : blank || !lines[i].empty())
      out += space;
    out += lines[i];
    call.evaluator.chargeBytes(space.size() + lines[i].size() + 1);
  }
  return Value(std::move(out));
}

/// Filters that are functions of the input as a string.
template <std::string (*function)(std::string_view)>
static Value textFilter(const FilterCall &call) {
  return call.evaluator.make(function(call.evaluator.text(call.input)));
}

static const FilterTable &filters() {
  static const FilterTable table = [] {
    FilterTable all = listFilters();
    all.insert({
        {"tojson", toJsonFilter},
        {"length", lengthFilter},
        {"count", lengthFilter},
        {"default", defaultFilter},
        {"d", defaultFilter},
        {"int", intFilter},
        {"float", floatFilter},
        {"round", roundFilter},
        {"abs", absFilter},
        {"indent", indentFilter},
        {"upper", textFilter<upperText>},
        {"lower", textFilter<lowerText>},
        {"capitalize", textFilter<capitalizedText>},
        {"title",
         [](const FilterCall &call) {
           return call.evaluator.make(
               titleText(call.evaluator.text(call.input), /*words=*/true));
         }},
        {"trim",
         [](const FilterCall &call) {
           return call.evaluator.make(std::string(
               strippedText(call.evaluator.text(call.input),
                            call.text(0, "chars", ""), true, true)));
         }},
        {"replace",
         [](const FilterCall &call) {
           std::string text = call.evaluator.text(call.input),
                       what = call.text(0, "old", "");
           std::string by = call.text(1, "new", "");
           call.evaluator.chargeBytes((text.size() + 1) * (by.size() + 1));
           return call.evaluator.make(
               replacedText(text, what, by, call.integer(2, "count", -1)));
         }},
        {"string",
         [](const FilterCall &call) {
           return call.evaluator.make(call.evaluator.text(call.input));
         }},
        {"safe",
         [](const FilterCall &call) {
           return call.evaluator.make(call.evaluator.text(call.input));
         }},
    });
    return all;
  }();
  return table;
}

bool isFilter(const std::string &name) { return filters().contains(name); }

Value Evaluator::filter(const std::string &name, const Value &input,
                        const Arguments &arguments) {
  chargeSteps();
  // map can name a filter that maps again.
  if (++depth > options.budget.depth)
    throw TemplateError{"filters within filters too deeply"};
  Value result = filters().at(name)({*this, name, input, arguments});
  --depth;
  return result;
}

} // namespace tessera::chat
