// The Evaluator's operators, attributes and indices.
#include "runtime/infer/chat/Evaluator.h"
#include "runtime/infer/chat/Methods.h"

#include <algorithm>
#include <cmath>

namespace tessera::chat {

using Kind = Value::Kind;

[[noreturn]] static void failOperands(std::string_view operation,
                                      const Value &left, const Value &right) {
  for (const Value *value : {&left, &right})
    if (value->is(Kind::Undefined))
      value->failUndefined();
  throw TemplateError{fmt::format("{} {} {} is not supported", left.typeName(),
                                  operation, right.typeName())};
}

Value Evaluator::unary(const Expression &node) {
  Value value = evaluate(*node.arguments[0]);
  if (node.text == "not")
    return !value.truthy();
  if (value.is(Kind::Undefined))
    value.failUndefined();
  if (!value.isNumber())
    throw TemplateError{
        fmt::format("{}{} is not supported", node.text, value.typeName())};
  if (value.is(Kind::Float))
    return node.text == "-" ? -value.number() : value.number();
  return node.text == "-" ? integers('-', 0, value.integer())
                          : Value(value.integer());
}

/// Python's floor division and remainder, which has the sign of the divisor.
static int64_t floorDivide(int64_t left, int64_t right) {
  int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1
                                                        : quotient;
}

Value Evaluator::integers(char operation, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflow = false;
  switch (operation) {
  case '+':
    overflow = __builtin_add_overflow(left, right, &result);
    break;
  case '-':
    overflow = __builtin_sub_overflow(left, right, &result);
    break;
  case '*':
    overflow = __builtin_mul_overflow(left, right, &result);
    break;
  default: // '/' and '%' as Python's // and %
    if (right == 0)
      throw TemplateError{"division by zero"};
    overflow = right == -1 && left == INT64_MIN;
    if (!overflow) {
      int64_t quotient = floorDivide(left, right);
      result = operation == '/' ? quotient : left - quotient * right;
    }
  }
  if (overflow)
    throw TemplateError{"a number that is too large"};
  return result;
}

static Value powerOf(Evaluator &evaluator, const Value &base,
                     const Value &exponent) {
  if (base.is(Kind::Float) || exponent.is(Kind::Float) ||
      exponent.integer() < 0) {
    double result = std::pow(base.number(), exponent.number());
    if (!std::isfinite(result))
      throw TemplateError{"a power that is not a finite number"};
    return result;
  }
  int64_t result = 1;
  int64_t factor = base.integer();
  for (int64_t n = exponent.integer(); n > 0; n >>= 1) {
    evaluator.chargeSteps();
    bool overflow =
        (n & 1) != 0 && __builtin_mul_overflow(result, factor, &result);
    overflow |= n > 1 && __builtin_mul_overflow(factor, factor, &factor);
    if (overflow)
      throw TemplateError{"a number that is too large"};
  }
  return result;
}

static Value floats(const std::string &operation, double left, double right) {
  if (operation == "+")
    return left + right;
  if (operation == "-")
    return left - right;
  if (operation == "*")
    return left * right;
  if (right == 0)
    throw TemplateError{"division by zero"};
  if (operation == "/")
    return left / right;
  double remainder = std::fmod(left, right);
  if (remainder == 0)
    remainder = std::copysign(0.0, right);
  else if ((remainder < 0) != (right < 0))
    remainder += right;
  if (operation == "%")
    return remainder;
  return std::round((left - remainder) / right);
}

Value Evaluator::binary(const Expression &node) {
  Value left = evaluate(*node.arguments[0]);
  Value right = evaluate(*node.arguments[1]);
  const std::string &text = node.text;
  if (text == "~")
    return make(this->text(left) + this->text(right));
  if (left.isNumber() && right.isNumber()) {
    if (text == "**")
      return powerOf(*this, left, right);
    if (text == "/" || left.is(Kind::Float) || right.is(Kind::Float))
      return floats(text, left.number(), right.number());
    return integers(text[0], left.integer(), right.integer());
  }
  if (text == "+" && left.is(Kind::String) && right.is(Kind::String))
    return make(left.text() + right.text());
  if (text == "+" && left.isList() && left.kind() == right.kind()) {
    List joined = left.list();
    joined.insert(joined.end(), right.list().begin(), right.list().end());
    return make(std::move(joined), left.kind());
  }
  if (text == "*" && left.isNumber())
    std::swap(left, right);
  if (text == "*" && right.isNumber() && !right.is(Kind::Float) &&
      (left.is(Kind::String) || left.isList())) {
    auto count = static_cast<uint64_t>(std::max<int64_t>(0, right.integer()));
    size_t size = left.is(Kind::String) ? left.text().size()
                                        : left.list().size() * sizeof(Value);
    count = size == 0 ? 0 : std::min<uint64_t>(count, UINT32_MAX);
    chargeSteps(count); // before anything of that size is allocated
    chargeBytes(size * count);
    std::string repeated;
    List list;
    for (uint64_t i = 0; i < count; ++i)
      if (left.is(Kind::String))
        repeated += left.text();
      else
        list.insert(list.end(), left.list().begin(), left.list().end());
    return left.is(Kind::String) ? Value(std::move(repeated))
                                 : Value(std::move(list), left.kind());
  }
  failOperands(text, left, right);
}

bool Evaluator::comparison(const Expression &node) {
  Value left = evaluate(*node.arguments[0]);
  for (size_t i = 0; i < node.names.size(); ++i) {
    Value right = evaluate(*node.arguments[i + 1]);
    const std::string &relation = node.names[i];
    bool holds = false;
    if (relation == "==" || relation == "!=")
      holds = equal(left, right) == (relation == "==");
    else if (relation == "in" || relation == "not in")
      holds = contains(right, left) == (relation == "in");
    else if (int sign = order(left, right); relation[0] == '<')
      holds = relation == "<" ? sign < 0 : sign <= 0;
    else
      holds = relation == ">" ? sign > 0 : sign >= 0;
    if (!holds)
      return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::attribute(const Value &value, const std::string &name) {
  if (value.is(Kind::Undefined))
    value.failUndefined();
  if (value.is(Kind::Namespace) || value.is(Kind::Dict)) {
    bool method = value.is(Kind::Dict) && isMethod(value, name);
    const Value *member = method ? nullptr : value.dict().find(name);
    if (member)
      return *member;
  }
  if (isMethod(value, name)) {
    auto method = std::make_shared<Function>();
    method->kind = Function::Kind::Method;
    method->name = name;
    method->self = value;
    return std::shared_ptr<const Function>(std::move(method));
  }
  return Value::undefined(fmt::format(
      "'{} object' has no attribute '{}', which", value.typeName(), name));
}

Value Evaluator::item(const Value &value, const Value &index) {
  if (value.is(Kind::Undefined))
    value.failUndefined();
  auto missing = [&] {
    return Value::undefined(
        fmt::format("an element of a {}", value.typeName()));
  };
  if (index.is(Kind::String)) {
    if (value.is(Kind::Dict))
      if (const Value *member = value.dict().find(index.text()))
        return *member;
    return attribute(value, index.text());
  }
  if (!index.isNumber() || index.is(Kind::Float))
    return missing();
  if (!value.is(Kind::String) && !value.isList())
    return missing();
  std::u32string points;
  if (value.is(Kind::String)) {
    chargeBytes(value.text().size());
    points = codePoints(value.text());
  }
  auto size = static_cast<int64_t>(value.isList() ? value.list().size()
                                                  : points.size());
  int64_t place = index.integer();
  if (place < 0)
    place += size;
  if (place < 0 || place >= size)
    return missing();
  auto i = static_cast<size_t>(place);
  return value.isList() ? value.list()[i]
                        : make(fromCodePoints({&points[i], 1}));
}

Value Evaluator::slice(const Expression &node) {
  Value value = evaluate(*node.arguments[0]);
  if (value.is(Kind::Undefined))
    value.failUndefined();
  if (!value.is(Kind::String) && !value.isList())
    throw TemplateError{fmt::format("a {} cannot be sliced", value.typeName())};
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    bounds[i] = node.arguments[i + 1] ? evaluate(*node.arguments[i + 1])
                                      : Value::none();
    if (!bounds[i].is(Kind::None) &&
        (!bounds[i].isNumber() || bounds[i].is(Kind::Float)))
      throw TemplateError{"the bounds of a slice must be integers"};
  }
  std::u32string points;
  if (value.is(Kind::String))
    points = codePoints(value.text());
  auto size = static_cast<int64_t>(value.isList() ? value.list().size()
                                                  : points.size());
  chargeBytes(static_cast<size_t>(size) * sizeof(Value));
  int64_t step = bounds[2].is(Kind::None) ? 1 : bounds[2].integer();
  if (step == 0)
    throw TemplateError{"the step of a slice must not be 0"};
  auto bound = [&](const Value &given, int64_t otherwise) {
    if (given.is(Kind::None))
      return otherwise;
    int64_t place = given.integer();
    if (place < 0)
      place = std::max(place + size, step < 0 ? int64_t{-1} : int64_t{0});
    return std::min(place, step < 0 ? size - 1 : size);
  };
  int64_t begin = bound(bounds[0], step < 0 ? size - 1 : 0);
  int64_t end = bound(bounds[1], step < 0 ? -1 : size);
  // Larger steps leave the range as well.
  step = std::clamp(step, -size - 1, size + 1);
  List list;
  std::u32string part;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step)
    if (value.isList())
      list.push_back(value.list()[static_cast<size_t>(i)]);
    else
      part.push_back(points[static_cast<size_t>(i)]);
  return value.isList() ? make(std::move(list), value.kind())
                        : make(fromCodePoints(part));
}

} // namespace tessera::chat
