// Jinja's filters of lists: they select, order, change or join elements.
#include "runtime/infer/chat/FilterCall.h"

#include <algorithm>
#include <list>

namespace tessera::chat {

using Kind = Value::Kind;

static Value joinFilter(const FilterCall &call) {
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

/// The arguments from `first` on.
static Arguments rest(const Arguments &arguments, size_t first) {
  Arguments result;
  result.named = arguments.named;
  for (size_t i = first; i < arguments.positional.size(); ++i)
    result.positional.push_back(arguments.positional[i]);
  return result;
}

static Value mapFilter(const FilterCall &call) {
  List mapped;
  if (!call.input.truthy()) // of any type
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
static Value selectFilter(const FilterCall &call) {
  if (!call.input.truthy()) // of any type
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

static Value itemsFilter(const FilterCall &call) {
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

/// Sort keys: strings are compared without case unless told otherwise.
static Value sortKey(const Value &value, bool caseSensitive) {
  return value.is(Kind::String) && !caseSensitive
             ? Value(lowerText(value.text()))
             : value;
}

static Value sortFilter(const FilterCall &call) {
  bool reverse = call.flag(0, "reverse");
  bool caseSensitive = call.flag(1, "case_sensitive");
  const Value *attribute = call.find(2, "attribute");
  // A list's sort merges: it is stable, and values without an order (nan)
  // cannot break it.
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

static Value uniqueFilter(const FilterCall &call) {
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

static Value dictSortFilter(const FilterCall &call) {
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

static Value firstOrLast(const FilterCall &call) {
  List list = call.evaluator.elements(call.input);
  if (list.empty())
    return Value::undefined("the " + call.name + " of nothing");
  return call.name == "first" ? list.front() : list.back();
}

static Value reverseFilter(const FilterCall &call) {
  List list = call.evaluator.elements(call.input);
  std::reverse(list.begin(), list.end());
  if (!call.input.is(Kind::String))
    return call.evaluator.make(std::move(list));
  std::string text;
  for (const Value &character : list)
    text += character.text();
  return call.evaluator.make(std::move(text));
}

static Value extremeFilter(const FilterCall &call) {
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

static Value sumFilter(const FilterCall &call) {
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

FilterTable listFilters() {
  return {
      {"join", joinFilter},
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
      {"min", extremeFilter},
      {"max", extremeFilter},
      {"sum", sumFilter},
      {"list",
       [](const FilterCall &call) {
         return call.evaluator.make(call.evaluator.elements(call.input));
       }},
  };
}

} // namespace tessera::chat
