// Jinja's tests: the names after `is`.
#include "runtime/infer/chat/Evaluator.h"
#include "runtime/infer/chat/Strings.h"

#include <cmath>
#include <map>

namespace tessera::chat {

using Kind = Value::Kind;

namespace {
struct Call {
  Evaluator &evaluator;
  const Value &input;
  const Arguments &arguments;
  const Value &argument() const {
    if (arguments.positional.empty())
      throw TemplateError{"a test lacks its argument"};
    return arguments.positional[0];
  }
};
using Test = bool (*)(const Call &);

bool isDivisible(const Value &value, const Value &divisor) {
  for (const Value *operand : {&value, &divisor}) {
    if (operand->is(Kind::Undefined))
      operand->failUndefined();
    if (!operand->isNumber())
      throw TemplateError{fmt::format("a test of numbers cannot take a {}",
                                      operand->typeName())};
  }
  if (divisor.number() == 0)
    throw TemplateError{"division by zero"};
  if (value.is(Kind::Float) || divisor.is(Kind::Float))
    return std::fmod(value.number(), divisor.number()) == 0;
  // -1 divides everything, and the smallest integer divided by -1 overflows.
  return divisor.integer() == -1 || value.integer() % divisor.integer() == 0;
}

template <Kind... kinds> bool isOf(const Call &call) {
  return (call.input.is(kinds) || ...);
}

bool isEqual(const Call &call) {
  return call.evaluator.equal(call.input, call.argument());
}
bool isLess(const Call &call) {
  return call.evaluator.order(call.input, call.argument()) < 0;
}
bool isGreater(const Call &call) {
  return call.evaluator.order(call.input, call.argument()) > 0;
}
bool isAtMost(const Call &call) {
  return call.evaluator.order(call.input, call.argument()) <= 0;
}
bool isAtLeast(const Call &call) {
  return call.evaluator.order(call.input, call.argument()) >= 0;
}
bool isUnequal(const Call &call) { return !isEqual(call); }
} // namespace

static const std::map<std::string, Test, std::less<>> &tests() {
  static const std::map<std::string, Test, std::less<>> table = {
      {"defined",
       [](const Call &call) { return !call.input.is(Kind::Undefined); }},
      {"undefined", isOf<Kind::Undefined>},
      {"none", isOf<Kind::None>},
      {"boolean", isOf<Kind::Bool>},
      {"integer", isOf<Kind::Int>},
      {"float", isOf<Kind::Float>},
      {"number", isOf<Kind::Int, Kind::Float, Kind::Bool>},
      {"string", isOf<Kind::String>},
      {"mapping", isOf<Kind::Dict>},
      {"iterable", isOf<Kind::String, Kind::List, Kind::Tuple, Kind::Dict,
                        Kind::Undefined>},
      {"sequence", isOf<Kind::String, Kind::List, Kind::Tuple, Kind::Dict,
                        Kind::Undefined>},
      {"callable", isOf<Kind::Function, Kind::Undefined>},
      {"true",
       [](const Call &call) {
         return call.input.is(Kind::Bool) && call.input.boolean();
       }},
      {"false",
       [](const Call &call) {
         return call.input.is(Kind::Bool) && !call.input.boolean();
       }},
      {"even",
       [](const Call &call) { return isDivisible(call.input, int64_t{2}); }},
      {"odd",
       [](const Call &call) { return !isDivisible(call.input, int64_t{2}); }},
      {"divisibleby",
       [](const Call &call) {
         return isDivisible(call.input, call.argument());
       }},
      {"in",
       [](const Call &call) {
         return call.evaluator.contains(call.argument(), call.input);
       }},
      {"lower",
       [](const Call &call) {
         std::string text = call.evaluator.text(call.input);
         return lowerText(text) == text && upperText(text) != text;
       }},
      {"upper",
       [](const Call &call) {
         std::string text = call.evaluator.text(call.input);
         return upperText(text) == text && lowerText(text) != text;
       }},
      {"eq", isEqual},
      {"equalto", isEqual},
      {"==", isEqual},
      {"ne", isUnequal},
      {"!=", isUnequal},
      {"lt", isLess},
      {"lessthan", isLess},
      {"<", isLess},
      {"gt", isGreater},
      {"greaterthan", isGreater},
      {">", isGreater},
      {"le", isAtMost},
      {"<=", isAtMost},
      {"ge", isAtLeast},
      {">=", isAtLeast},
  };
  return table;
}

bool isTest(const std::string &name) { return tests().contains(name); }

bool Evaluator::test(const std::string &name, const Value &input,
                     const Arguments &arguments) {
  chargeSteps();
  return tests().at(name)({*this, input, arguments});
}

} // namespace tessera::chat
