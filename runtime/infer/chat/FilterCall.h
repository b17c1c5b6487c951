// The input and arguments of a filter.
#pragma once
#include "runtime/infer/chat/Evaluator.h"
#include "runtime/infer/chat/Strings.h"

#include <charconv>
#include <map>
#include <string>

namespace tessera::chat {

/// A call of a filter; errors name it.
struct FilterCall {
  Evaluator &evaluator;
  const std::string &name;
  const Value &input;
  const Arguments &arguments;

  const Value *find(size_t place, std::string_view argument) const {
    return arguments.find(place, argument);
  }
  std::string text(size_t place, std::string_view argument,
                   std::string_view otherwise) const {
    const Value *value = find(place, argument);
    return value && !value->is(Value::Kind::None) ? evaluator.text(*value)
                                                  : std::string(otherwise);
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
    if (!value->isNumber() || value->is(Value::Kind::Float))
      fail("needs an integer");
    return value->integer();
  }
  [[noreturn]] void fail(std::string_view what) const {
    if (input.is(Value::Kind::Undefined))
      input.failUndefined();
    throw TemplateError{fmt::format("the filter {} {}", name, what)};
  }
  /// `attribute` of `value`; dots nest, and numbers are indices.
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
using Filter = Value (*)(const FilterCall &);
using FilterTable = std::map<std::string, Filter, std::less<>>;

/// Filters of the elements of the input.
FilterTable listFilters();

} // namespace tessera::chat
