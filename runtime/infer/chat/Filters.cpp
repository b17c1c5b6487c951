// Jinja's filters and tests, as far as templates of models use them.
#include "runtime/infer/chat/Evaluator.h"
#include "runtime/infer/chat/Strings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <list>
#include <map>

namespace tessera::chat {

using Kind = Value::Kind;

namespace {
/// The arguments of one filter, which are all given in an error.
struct Call {
  Evaluator &evaluator;
  const std::string &name;
  const Value &input;
  const Arguments &arguments;

  const Value *find(size_t place, std::string_view argument) const {
    return arguments.find(place, argument);
  }
  std::string text(size_t place, std::string_view argument,
                   std::string otherwise) const {
    const Value *value = find(place, argument);
    return value && !value->is(Kind::None) ? evaluator.text(*value) : otherwise;
  }
  bool flag(size_t place, std::string_view argument) const {
    const Value *value = find(place, argument);
    return value && value->truthy();
  }
  int64_t integer(size_t place, std::string_view argument,
                  int64_t otherwise) const {
    const Value *value = find(place, argument);
    if (!value)
      return otherwise;
    if (!value->isNumber() || value->is(Kind::Float))
      fail("needs an integer");
    return value->integer();
  }
  [[noreturn]] void fail(std::string_view what) const {
    if (input.is(Kind::Undefined))
      input.failUndefined();
    throw TemplateError{fmt::format("the filter {} {}", name, what)};
  }
  /// `attribute` of `value`, through dots as well; numbers are indices.
  Value attributeOf(Value value, const std::string &attribute) const {
    for (const std::string &part : splitText(attribute, ".", -1)) {
      int64_t index = 0;
      auto [end, code] =
          std::from_chars(part.data(), part.data() + part.size(), index);
      bool number = code == std::errc() && end == part.data() + part.size();
      value = evaluator.item(value, number ? Value(index) : Value(part));
    }
    return value;
  }
};
using Filter = Value (*)(const Call &);
} // namespace

static Value toJsonFilter(const Call &call) {
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

static Value lengthFilter(const Call &call) {
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

static Value joinFilter(const Call &call) {
  std::string separator = call.text(0, "d", ""), joined;
  const Value *attribute = call.find(1, "attribute");
  bool first = true;
  for (Value part : call.evaluator.elements(call.input)) {
    if (attribute)
      part = call.attributeOf(part, call.evaluator.text(*attribute));
    joined += std::exchange(first, false) ? "" : separator;
    std::string text = call.evaluator.text(part);
    call.evaluator.chargeBytes(separator.size() + text.size());
    joined += text;
  }
  return Value(std::move(joined));
}

static Value defaultFilter(const Call &call) {
  bool replaces = call.input.is(Kind::Undefined) ||
                  (call.flag(1, "boolean") && !call.input.truthy());
  if (!replaces)
    return call.input;
  const Value *otherwise = call.find(0, "default_value");
  return otherwise ? *otherwise : Value(std::string());
}

/// The arguments from `first` on.
static Arguments rest(const Arguments &arguments, size_t first) {
  Arguments result;
  result.named = arguments.named;
  for (size_t i = first; i < arguments.positional.size(); ++i)
    result.positional.push_back(arguments.positional[i]);
  return result;
}

static Value mapFilter(const Call &call) {
  List mapped;
  if (!call.input.truthy()) // whatever it is
    return mapped;
  const Value *attribute = nullptr, *otherwise = nullptr;
  for (const auto &[name, value] : call.arguments.named)
    (name == "attribute" ? attribute : otherwise) = &value;
  const Value *filter = call.arguments.positional.empty()
                            ? nullptr
                            : call.arguments.positional.data();
  if (!attribute &&
      (!filter || !filter->is(Kind::String) || !isFilter(filter->text())))
    call.fail("needs an attribute or the name of a filter");
  for (const Value &element : call.evaluator.elements(call.input)) {
    call.evaluator.chargeSteps();
    if (!attribute) {
      mapped.push_back(call.evaluator.filter(filter->text(), element,
                                             rest(call.arguments, 1)));
      continue;
    }
    Value value = call.attributeOf(element, call.evaluator.text(*attribute));
    mapped.push_back(value.is(Kind::Undefined) && otherwise ? *otherwise
                                                            : value);
  }
  return call.evaluator.make(std::move(mapped));
}

/// select, reject, selectattr and rejectattr.
static Value selectFilter(const Call &call) {
  if (!call.input.truthy()) // whatever it is
    return List{};
  bool attribute = call.name.ends_with("attr");
  bool wanted = call.name.starts_with("select");
  size_t testPlace = attribute ? 1 : 0;
  const auto &given = call.arguments.positional;
  if (attribute && given.empty())
    call.fail("needs an attribute");
  const Value *test = testPlace < given.size() ? &given[testPlace] : nullptr;
  if (test && (!test->is(Kind::String) || !isTest(test->text())))
    call.fail("needs the name of a test");
  List kept;
  for (const Value &element : call.evaluator.elements(call.input)) {
    call.evaluator.chargeSteps();
    Value value = attribute
                      ? call.attributeOf(element, call.evaluator.text(given[0]))
                      : element;
    bool holds = test ? call.evaluator.test(test->text(), value,
                                            rest(call.arguments, testPlace + 1))
                      : value.truthy();
    if (holds == wanted)
      kept.push_back(element);
  }
  return call.evaluator.make(std::move(kept));
}

static Value itemsFilter(const Call &call) {
  if (call.input.is(Kind::Undefined))
    return List{};
  if (!call.input.is(Kind::Dict))
    call.fail("needs a dictionary");
  List list;
  for (const auto &[name, value] : call.input.dict().members)
    list.push_back(call.evaluator.make(List{call.evaluator.make(name), value},
                                       Kind::Tuple));
  return call.evaluator.make(std::move(list));
}

/// What values are sorted by: strings without case unless told otherwise.
static Value sortKey(const Value &value, bool caseSensitive) {
  return value.is(Kind::String) && !caseSensitive
             ? Value(lowerText(value.text()))
             : value;
}

static Value sortFilter(const Call &call) {
  bool reverse = call.flag(0, "reverse");
  bool caseSensitive = call.flag(1, "case_sensitive");
  const Value *attribute = call.find(2, "attribute");
  // A list's sort merges: it keeps the order of equals, and values without an
  // order among them (nan) do it no harm.
  std::list<std::pair<Value, Value>> keyed;
  for (const Value &element : call.evaluator.elements(call.input)) {
    call.evaluator.chargeSteps(20);
    Value key = attribute
                    ? call.attributeOf(element, call.evaluator.text(*attribute))
                    : element;
    keyed.emplace_back(sortKey(key, caseSensitive), element);
  }
  keyed.sort([&](const auto &a, const auto &b) {
    int order = call.evaluator.order(a.first, b.first);
    return reverse ? order > 0 : order < 0;
  });
  List sorted;
  for (auto &[key, value] : keyed)
    sorted.push_back(std::move(value));
  return call.evaluator.make(std::move(sorted));
}

static Value uniqueFilter(const Call &call) {
  bool caseSensitive = call.flag(0, "case_sensitive");
  List keys, kept;
  for (const Value &element : call.evaluator.elements(call.input)) {
    call.evaluator.chargeSteps();
    if (element.is(Kind::List) || element.is(Kind::Dict))
      call.fail(fmt::format("cannot compare a {}", element.typeName()));
    Value key = sortKey(element, caseSensitive);
    if (std::ranges::any_of(keys, [&](const Value &known) {
          return call.evaluator.equal(known, key);
        }))
      continue;
    keys.push_back(std::move(key));
    kept.push_back(element);
  }
  return call.evaluator.make(std::move(kept));
}

static Value dictSortFilter(const Call &call) {
  if (!call.input.is(Kind::Dict))
    call.fail("needs a dictionary");
  bool caseSensitive = call.flag(0, "case_sensitive");
  bool byValue = call.text(1, "by", "key") == "value";
  bool reverse = call.flag(2, "reverse");
  List pairs = itemsFilter(call).list();
  std::list<Value> items(pairs.begin(), pairs.end());
  call.evaluator.chargeSteps(items.size() * 20);
  auto key = [&](const Value &pair) {
    return sortKey(pair.list()[byValue ? 1 : 0], caseSensitive);
  };
  items.sort([&](const Value &a, const Value &b) {
    int order = call.evaluator.order(key(a), key(b));
    return reverse ? order > 0 : order < 0;
  });
  return call.evaluator.make(List(items.begin(), items.end()));
}

static Value firstOrLast(const Call &call) {
  List list = call.evaluator.elements(call.input);
  if (list.empty())
    return Value::undefined("the " + call.name + " of nothing");
  return call.name == "first" ? list.front() : list.back();
}

static Value reverseFilter(const Call &call) {
  List list = call.evaluator.elements(call.input);
  std::reverse(list.begin(), list.end());
  if (!call.input.is(Kind::String))
    return call.evaluator.make(std::move(list));
  std::string text;
  for (const Value &character : list)
    text += character.text();
  return call.evaluator.make(std::move(text));
}

static Value intFilter(const Call &call) {
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

static Value floatFilter(const Call &call) {
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

static Value roundFilter(const Call &call) {
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
    value = std::nearbyint(value); // halves to even, as Python has it
  else if (method == "ceil")
    value = std::ceil(value);
  else if (method == "floor")
    value = std::floor(value);
  else
    call.fail("knows common, ceil and floor");
  return value / scale;
}

static Value absFilter(const Call &call) {
  if (!call.input.isNumber())
    call.fail("needs a number");
  if (call.input.is(Kind::Float))
    return std::fabs(call.input.number());
  if (call.input.integer() == INT64_MIN)
    call.fail("has a number that is too large");
  return std::abs(call.input.integer());
}

static Value indentFilter(const Call &call) {
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

static Value extremeFilter(const Call &call) {
  List list = call.evaluator.elements(call.input);
  if (list.empty())
    return Value::undefined("the " + call.name + " of nothing");
  Value best = list[0];
  for (const Value &value : list) {
    int order =
        call.evaluator.order(sortKey(value, false), sortKey(best, false));
    if (call.name == "min" ? order < 0 : order > 0)
      best = value;
  }
  return best;
}

static Value sumFilter(const Call &call) {
  double sum = 0;
  int64_t whole = 0;
  bool real = false;
  const Value *attribute = call.find(0, "attribute");
  for (Value value : call.evaluator.elements(call.input)) {
    if (attribute)
      value = call.attributeOf(value, call.evaluator.text(*attribute));
    if (!value.isNumber())
      call.fail("needs numbers");
    real |= value.is(Kind::Float);
    sum += value.number();
    if (!value.is(Kind::Float) &&
        __builtin_add_overflow(whole, value.integer(), &whole))
      call.fail("has a number that is too large");
  }
  return real ? Value(sum) : Value(whole);
}

/// Filters that are functions of the input's text.
template <std::string (*function)(std::string_view)>
static Value textFilter(const Call &call) {
  return call.evaluator.make(function(call.evaluator.text(call.input)));
}

static const std::map<std::string, Filter, std::less<>> &filters() {
  static const std::map<std::string, Filter, std::less<>> table = {
      {"tojson", toJsonFilter},
      {"length", lengthFilter},
      {"count", lengthFilter},
      {"join", joinFilter},
      {"default", defaultFilter},
      {"d", defaultFilter},
      {"map", mapFilter},
      {"select", selectFilter},
      {"reject", selectFilter},
      {"selectattr", selectFilter},
      {"rejectattr", selectFilter},
      {"items", itemsFilter},
      {"sort", sortFilter},
      {"unique", uniqueFilter},
      {"dictsort", dictSortFilter},
      {"first", firstOrLast},
      {"last", firstOrLast},
      {"reverse", reverseFilter},
      {"int", intFilter},
      {"float", floatFilter},
      {"round", roundFilter},
      {"abs", absFilter},
      {"indent", indentFilter},
      {"min", extremeFilter},
      {"max", extremeFilter},
      {"sum", sumFilter},
      {"upper", textFilter<upperText>},
      {"lower", textFilter<lowerText>},
      {"capitalize", textFilter<capitalizedText>},
      {"title",
       [](const Call &call) {
         return call.evaluator.make(
             titleText(call.evaluator.text(call.input), /*words=*/true));
       }},
      {"trim",
       [](const Call &call) {
         return call.evaluator.make(
             std::string(strippedText(call.evaluator.text(call.input),
                                      call.text(0, "chars", ""), true, true)));
       }},
      {"replace",
       [](const Call &call) {
         std::string text = call.evaluator.text(call.input),
                     what = call.text(0, "old", "");
         std::string by = call.text(1, "new", "");
         call.evaluator.chargeBytes((text.size() + 1) * (by.size() + 1));
         return call.evaluator.make(
             replacedText(text, what, by, call.integer(2, "count", -1)));
       }},
      {"string",
       [](const Call &call) {
         return call.evaluator.make(call.evaluator.text(call.input));
       }},
      {"safe",
       [](const Call &call) {
         return call.evaluator.make(call.evaluator.text(call.input));
       }},
      {"list",
       [](const Call &call) {
         return call.evaluator.make(call.evaluator.elements(call.input));
       }},
  };
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
