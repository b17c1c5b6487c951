// Precedence and associativity are those of Jinja's grammar.
#include "runtime/infer/chat/ExpressionParser.h"

#include <algorithm>
#include <charconv>

namespace tessera::chat {

/// Limits the height of a tree that is walked by recursion.
static constexpr uint32_t maxHeight = 400;

//===--- nodes ------------------------------------------------------------===//

ExpressionParser::Pointer ExpressionParser::make(Expression::Kind kind) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = peek().line;
  return node;
}

ExpressionParser::Pointer ExpressionParser::make(Expression::Kind kind,
                                                 Pointer argument) const {
  Pointer node = make(kind);
  add(*node, std::move(argument));
  return node;
}

// Left-associative chains grow trees without recursion here, but the evaluator
// recurses over them.
void ExpressionParser::add(Expression &node, Pointer argument) const {
  if (argument && argument->height >= maxHeight)
    fail("an expression nested too deeply");
  if (argument)
    node.height = std::max(node.height, argument->height + 1);
  node.arguments.push_back(std::move(argument));
}

ExpressionParser::Pointer ExpressionParser::constant(Value value) const {
  Pointer node = make(Expression::Kind::Constant);
  node->value = std::move(value);
  return node;
}

//===--- operators --------------------------------------------------------===//

ExpressionParser::Pointer ExpressionParser::tuple(bool withCondition) {
  auto element = [&] { return withCondition ? conditional() : either(); };
  Pointer first = element();
  if (!isOperator(","))
    return first;
  Pointer node = make(Expression::Kind::Tuple, std::move(first));
  while (takeOperator(",")) {
    if (is(Token::Kind::PrintEnd) || is(Token::Kind::BlockEnd) ||
        isOperator(")"))
      break;
    add(*node, element());
  }
  return node;
}

ExpressionParser::Pointer ExpressionParser::conditional() {
  Nested nested(*this);
  Pointer node = either();
  while (takeName("if")) {
    Pointer choice = make(Expression::Kind::Conditional, either());
    add(*choice, std::move(node));
    add(*choice, takeName("else") ? conditional() : nullptr);
    node = std::move(choice);
  }
  return node;
}

ExpressionParser::Pointer ExpressionParser::either() {
  Pointer node = both();
  while (takeName("or")) {
    node = make(Expression::Kind::Or, std::move(node));
    add(*node, both());
  }
  return node;
}

ExpressionParser::Pointer ExpressionParser::both() {
  Pointer node = negation();
  while (takeName("and")) {
    node = make(Expression::Kind::And, std::move(node));
    add(*node, negation());
  }
  return node;
}

ExpressionParser::Pointer ExpressionParser::negation() {
  if (!takeName("not"))
    return comparison();
  Nested nested(*this);
  Pointer node = make(Expression::Kind::Unary, negation());
  node->text = "not";
  return node;
}

ExpressionParser::Pointer ExpressionParser::comparison() {
  Pointer node = make(Expression::Kind::Compare, sum());
  while (true) {
    std::string relation;
    for (std::string_view text : {"==", "!=", "<=", ">=", "<", ">"})
      if (relation.empty() && takeOperator(text))
        relation = text;
    if (relation.empty() && takeName("in"))
      relation = "in";
    if (relation.empty() && isName("not") && tokens[at + 1].text == "in") {
      at += 2;
      relation = "not in";
    }
    if (relation.empty())
      break;
    node->names.push_back(std::move(relation));
    add(*node, sum());
  }
  if (!node->names.empty())
    return node;
  Pointer only = std::move(node->arguments[0]);
  return only;
}

ExpressionParser::Pointer ExpressionParser::binary(Pointer left, Pointer right,
                                                   std::string text) {
  Pointer node = make(Expression::Kind::Binary, std::move(left));
  add(*node, std::move(right));
  node->text = std::move(text);
  return node;
}

ExpressionParser::Pointer ExpressionParser::sum() {
  Pointer node = concatenation();
  while (isOperator("+") || isOperator("-")) {
    std::string text = tokens[at++].text;
    node = binary(std::move(node), concatenation(), text);
  }
  return node;
}

ExpressionParser::Pointer ExpressionParser::concatenation() {
  Pointer node = product();
  while (takeOperator("~"))
    node = binary(std::move(node), product(), "~");
  return node;
}

ExpressionParser::Pointer ExpressionParser::product() {
  Pointer node = power();
  while (isOperator("*") || isOperator("/") || isOperator("//") ||
         isOperator("%")) {
    std::string text = tokens[at++].text;
    node = binary(std::move(node), power(), text);
  }
  return node;
}

ExpressionParser::Pointer ExpressionParser::power() {
  Pointer node = unary(true);
  while (takeOperator("**")) // left-associative, as in Jinja
    node = binary(std::move(node), unary(true), "**");
  return node;
}

ExpressionParser::Pointer ExpressionParser::unary(bool filters) {
  Nested nested(*this);
  Pointer node;
  if (isOperator("-") || isOperator("+")) {
    std::string sign = tokens[at++].text;
    node = make(Expression::Kind::Unary, unary(false));
    node->text = std::move(sign);
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return filters ? filtersAndTests(std::move(node)) : std::move(node);
}

//===--- operands ---------------------------------------------------------===//

ExpressionParser::Pointer ExpressionParser::number() {
  const std::string text = tokens[at].text;
  if (tokens[at++].kind == Token::Kind::Int) {
    int64_t value = 0;
    auto [end, code] =
        std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc())
      fail("a number that is too large");
    return constant(value);
  }
  double value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return constant(value);
}

ExpressionParser::Pointer ExpressionParser::primary() {
  if (is(Token::Kind::Name)) {
    std::string word = name();
    if (word == "true" || word == "True")
      return constant(true);
    if (word == "false" || word == "False")
      return constant(false);
    if (word == "none" || word == "None")
      return constant(Value::none());
    Pointer node = make(Expression::Kind::Name);
    node->text = std::move(word);
    return node;
  }
  if (is(Token::Kind::String)) {
    std::string text;
    while (is(Token::Kind::String))
      text += tokens[at++].text;
    return constant(std::move(text));
  }
  if (is(Token::Kind::Int) || is(Token::Kind::Float))
    return number();
  if (takeOperator("(")) {
    if (takeOperator(")"))
      return make(Expression::Kind::Tuple);
    Pointer node = tuple(true);
    expectOperator(")");
    return node;
  }
  if (takeOperator("[")) {
    Pointer node = make(Expression::Kind::List);
    while (!takeOperator("]")) {
      add(*node, conditional());
      if (!isOperator("]"))
        expectOperator(",");
    }
    return node;
  }
  if (isOperator("{"))
    return dictionary();
  fail("an expression is missing");
}

ExpressionParser::Pointer ExpressionParser::dictionary() {
  ++at;
  Pointer node = make(Expression::Kind::Dict);
  while (!takeOperator("}")) {
    add(*node, conditional());
    expectOperator(":");
    add(*node, conditional());
    if (!isOperator("}"))
      expectOperator(",");
  }
  return node;
}

/// `at` is after the opening bracket.
void ExpressionParser::callArguments(Expression &call) {
  while (!takeOperator(")")) {
    bool named = is(Token::Kind::Name) &&
                 tokens[at + 1].kind == Token::Kind::Operator &&
                 tokens[at + 1].text == "=";
    if (named) {
      call.names.push_back(name());
      ++at;
    } else if (!call.names.empty()) {
      fail("a positional argument after a named one");
    }
    add(call, conditional());
    if (!isOperator(")"))
      expectOperator(",");
  }
}

ExpressionParser::Pointer ExpressionParser::subscript(Pointer node) {
  Pointer parts[3];
  size_t part = 0;
  bool slice = false;
  while (!takeOperator("]")) {
    if (takeOperator(":")) {
      slice = true;
      if (++part > 2)
        fail("a slice of more than three parts");
    } else if (parts[part]) {
      fail("] is missing");
    } else {
      parts[part] = conditional();
    }
  }
  if (!slice && !parts[0])
    fail("an index is missing");
  node = make(slice ? Expression::Kind::Slice : Expression::Kind::Item,
              std::move(node));
  for (size_t i = 0; i < (slice ? 3 : 1); ++i)
    add(*node, std::move(parts[i]));
  return node;
}

ExpressionParser::Pointer ExpressionParser::postfix(Pointer node) {
  // A long chain is as deep a tree as nested brackets.
  for (size_t length = 0;; ++length) {
    if (length > maxNesting)
      fail("nested too deeply");
    if (takeOperator(".")) {
      node = make(Expression::Kind::Attribute, std::move(node));
      if (is(Token::Kind::Int))
        fail("an index after a dot is not supported");
      node->text = name();
    } else if (takeOperator("[")) {
      node = subscript(std::move(node));
    } else if (takeOperator("(")) {
      node = make(Expression::Kind::Call, std::move(node));
      callArguments(*node);
    } else {
      return node;
    }
  }
}

ExpressionParser::Pointer ExpressionParser::filtersAndTests(Pointer node) {
  for (size_t length = 0;; ++length) {
    if (length > maxNesting)
      fail("nested too deeply");
    if (takeOperator("|")) {
      node = make(Expression::Kind::Filter, std::move(node));
      node->text = name();
      if (!isFilter(node->text))
        fail(fmt::format("the filter {} is not supported", node->text));
      if (takeOperator("("))
        callArguments(*node);
    } else if (takeName("is")) {
      node = test(std::move(node));
    } else if (isOperator("(")) {
      node = postfix(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionParser::Pointer ExpressionParser::test(Pointer node) {
  bool negated = takeName("not");
  node = make(Expression::Kind::Test, std::move(node));
  node->text = name();
  if (!isTest(node->text))
    fail(fmt::format("the test {} is not supported", node->text));
  bool argument = is(Token::Kind::Name) || is(Token::Kind::String) ||
                  is(Token::Kind::Int) || is(Token::Kind::Float) ||
                  isOperator("[") || isOperator("{");
  for (std::string_view word : {"else", "or", "and", "if", "is", "not", "in"})
    argument &= !isName(word);
  if (takeOperator("("))
    callArguments(*node);
  else if (argument)
    add(*node, postfix(primary()));
  if (!negated)
    return node;
  node = make(Expression::Kind::Unary, std::move(node));
  node->text = "not";
  return node;
}

} // namespace tessera::chat
