// Recursive descent by Jinja's grammar and precedence.
#include "runtime/infer/chat/Ast.h"
#include "runtime/infer/chat/Lexer.h"

#include <algorithm>
#include <charconv>

namespace tessera::chat {

namespace {
using Pointer = Expression::Pointer;

constexpr uint32_t maxHeight = 400;

class Parser {
public:
  explicit Parser(std::string_view source) : tokens(tokenize(source)) {}
  Block parse() {
    Block block = statements({});
    if (!is(Token::Kind::End))
      fail("an unexpected end tag");
    return block;
  }

private:
  // Statements.
  Block statements(std::initializer_list<std::string_view> ends);
  void statement(const std::string &name, Block &out);
  Statement ifStatement();
  Statement forStatement();
  Statement setStatement();
  Statement macro();
  std::vector<std::string> targetNames(bool &unpacks);
  void endBlock(std::string_view name);

  // Expressions, from the loosest binding to the tightest.
  Pointer tuple(bool conditional);
  Pointer conditional();
  Pointer either();
  Pointer both();
  Pointer negation();
  Pointer comparison();
  Pointer sum();
  Pointer concatenation();
  Pointer product();
  Pointer power();
  Pointer unary(bool filters);
  Pointer primary();
  Pointer postfix(Pointer node);
  Pointer subscript(Pointer node);
  Pointer filtersAndTests(Pointer node);
  Pointer test(Pointer node);
  void callArguments(Expression &call);
  Pointer dictionary();
  Pointer number();
  Pointer binary(Pointer left, Pointer right, std::string text);

  struct Nested {
    explicit Nested(Parser &parser) : parser(parser) {
      if (++parser.depth > maxNesting)
        parser.fail("nested too deeply");
    }
    ~Nested() { --parser.depth; }
    Parser &parser;
  };

  const Token &peek() const { return tokens[at]; }
  bool is(Token::Kind kind) const { return peek().kind == kind; }
  bool isName(std::string_view text) const {
    return is(Token::Kind::Name) && peek().text == text;
  }
  bool isOperator(std::string_view text) const {
    return is(Token::Kind::Operator) && peek().text == text;
  }
  bool takeName(std::string_view text) {
    bool found = isName(text);
    at += found ? 1 : 0;
    return found;
  }
  bool takeOperator(std::string_view text) {
    bool found = isOperator(text);
    at += found ? 1 : 0;
    return found;
  }
  void expectOperator(std::string_view text) {
    if (!takeOperator(text))
      fail(fmt::format("{} is missing", text));
  }
  void expect(Token::Kind kind, std::string_view what) {
    if (!is(kind))
      fail(fmt::format("{} is missing", what));
    ++at;
  }
  std::string name() {
    if (!is(Token::Kind::Name))
      fail("a name is missing");
    return tokens[at++].text;
  }
  Pointer make(Expression::Kind kind) const {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = peek().line;
    return node;
  }
  Pointer make(Expression::Kind kind, Pointer argument) const {
    Pointer node = make(kind);
    add(*node, std::move(argument));
    return node;
  }
  /// Left-associative chains grow trees without recursion here, but whoever
  /// walks them recurses.
  void add(Expression &node, Pointer argument) const {
    if (argument && argument->height >= maxHeight)
      fail("an expression nested too deeply");
    if (argument)
      node.height = std::max(node.height, argument->height + 1);
    node.arguments.push_back(std::move(argument));
  }
  Pointer constant(Value value) const {
    Pointer node = make(Expression::Kind::Constant);
    node->value = std::move(value);
    return node;
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw TemplateError{fmt::format("line {}: {}", peek().line, what)};
  }

  std::vector<Token> tokens;
  size_t at = 0, depth = 0, loops = 0;
};
} // namespace

/// Statements up to a tag whose name is in `ends`, which is not passed.
Block Parser::statements(std::initializer_list<std::string_view> ends) {
  Nested nested(*this);
  Block block;
  while (!is(Token::Kind::End)) {
    Statement next;
    next.line = peek().line;
    if (is(Token::Kind::Text)) {
      next.text = tokens[at++].text;
      block.push_back(std::move(next));
    } else if (is(Token::Kind::PrintBegin)) {
      ++at;
      next.kind = Statement::Kind::Print;
      next.expression = tuple(true);
      expect(Token::Kind::PrintEnd, "}}");
      block.push_back(std::move(next));
    } else {
      const std::string &word = tokens[at + 1].text;
      if (std::find(ends.begin(), ends.end(), word) != ends.end())
        return block;
      ++at;
      statement(name(), block);
    }
  }
  if (ends.size() != 0)
    fail(fmt::format("{} is missing", *(ends.end() - 1)));
  return block;
}

/// Passes the end tag `name`.
void Parser::endBlock(std::string_view name) {
  ++at;
  if (!takeName(name))
    fail(fmt::format("{} is missing", name));
  expect(Token::Kind::BlockEnd, "%}");
}

void Parser::statement(const std::string &name, Block &out) {
  Statement next;
  next.line = peek().line;
  if (name == "if") {
    next = ifStatement();
  } else if (name == "for") {
    next = forStatement();
  } else if (name == "set") {
    next = setStatement();
  } else if (name == "macro") {
    next = macro();
  } else if (name == "generation") {
    next.kind = Statement::Kind::Group;
    expect(Token::Kind::BlockEnd, "%}");
    next.body = statements({"endgeneration"});
    endBlock("endgeneration");
  } else if (name == "break" || name == "continue") {
    if (loops == 0)
      fail(name + " outside of a loop");
    next.kind =
        name == "break" ? Statement::Kind::Break : Statement::Kind::Continue;
    expect(Token::Kind::BlockEnd, "%}");
  } else {
    fail(fmt::format("the tag {} is not supported", name));
  }
  out.push_back(std::move(next));
}

Statement Parser::ifStatement() {
  Statement node;
  node.kind = Statement::Kind::If;
  node.line = peek().line;
  node.expression = tuple(false);
  expect(Token::Kind::BlockEnd, "%}");
  node.body = statements({"elif", "else", "endif"});
  if (tokens[at + 1].text == "elif") {
    // Each elif is an if in the other's else, which costs depth.
    Nested nested(*this);
    at += 2;
    node.otherwise.push_back(ifStatement());
    return node;
  }
  if (tokens[at + 1].text == "else") {
    at += 2;
    expect(Token::Kind::BlockEnd, "%}");
    node.otherwise = statements({"endif"});
  }
  endBlock("endif");
  return node;
}

std::vector<std::string> Parser::targetNames(bool &unpacks) {
  std::vector<std::string> names;
  bool brackets = takeOperator("(");
  names.push_back(name());
  while (takeOperator(",")) {
    unpacks = true;
    if (is(Token::Kind::Name) && !isName("in"))
      names.push_back(name());
  }
  if (brackets)
    expectOperator(")");
  return names;
}

Statement Parser::forStatement() {
  Statement node;
  node.kind = Statement::Kind::For;
  node.line = peek().line;
  node.targets = targetNames(node.unpacks);
  if (!takeName("in"))
    fail("in is missing");
  node.expression = tuple(false);
  if (takeName("if"))
    node.condition = conditional();
  if (isName("recursive"))
    fail("a recursive loop is not supported");
  expect(Token::Kind::BlockEnd, "%}");
  ++loops;
  node.body = statements({"else", "endfor"});
  --loops;
  if (tokens[at + 1].text == "else") {
    at += 2;
    expect(Token::Kind::BlockEnd, "%}");
    node.otherwise = statements({"endfor"});
  }
  endBlock("endfor");
  return node;
}

Statement Parser::setStatement() {
  Statement node;
  node.kind = Statement::Kind::Set;
  node.line = peek().line;
  node.targets = targetNames(node.unpacks);
  if (takeOperator("."))
    node.text = name();
  if (takeOperator("=")) {
    node.expression = tuple(true);
    expect(Token::Kind::BlockEnd, "%}");
    return node;
  }
  if (node.unpacks || !node.text.empty())
    fail("= is missing");
  if (isOperator("|"))
    fail("a filter on a set block is not supported");
  node.kind = Statement::Kind::SetBlock;
  expect(Token::Kind::BlockEnd, "%}");
  node.body = statements({"endset"});
  endBlock("endset");
  return node;
}

Statement Parser::macro() {
  Statement node;
  node.kind = Statement::Kind::Macro;
  node.line = peek().line;
  node.text = name();
  expectOperator("(");
  while (!isOperator(")")) {
    node.targets.push_back(name());
    if (takeOperator("="))
      node.defaults.push_back(conditional());
    else if (!node.defaults.empty())
      fail("a parameter without default after one that has it");
    if (!isOperator(")"))
      expectOperator(",");
  }
  ++at;
  expect(Token::Kind::BlockEnd, "%}");
  size_t outer = std::exchange(loops, 0);
  node.body = statements({"endmacro"});
  loops = outer;
  endBlock("endmacro");
  return node;
}

/// Expressions with commas between them are a tuple.
Pointer Parser::tuple(bool withCondition) {
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

Pointer Parser::conditional() {
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

Pointer Parser::either() {
  Pointer node = both();
  while (takeName("or")) {
    node = make(Expression::Kind::Or, std::move(node));
    add(*node, both());
  }
  return node;
}

Pointer Parser::both() {
  Pointer node = negation();
  while (takeName("and")) {
    node = make(Expression::Kind::And, std::move(node));
    add(*node, negation());
  }
  return node;
}

Pointer Parser::negation() {
  if (!takeName("not"))
    return comparison();
  Nested nested(*this);
  Pointer node = make(Expression::Kind::Unary, negation());
  node->text = "not";
  return node;
}

Pointer Parser::comparison() {
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

Pointer Parser::binary(Pointer left, Pointer right, std::string text) {
  Pointer node = make(Expression::Kind::Binary, std::move(left));
  add(*node, std::move(right));
  node->text = std::move(text);
  return node;
}

Pointer Parser::sum() {
  Pointer node = concatenation();
  while (isOperator("+") || isOperator("-")) {
    std::string text = tokens[at++].text;
    node = binary(std::move(node), concatenation(), text);
  }
  return node;
}

Pointer Parser::concatenation() {
  Pointer node = product();
  while (takeOperator("~"))
    node = binary(std::move(node), product(), "~");
  return node;
}

Pointer Parser::product() {
  Pointer node = power();
  while (isOperator("*") || isOperator("/") || isOperator("//") ||
         isOperator("%")) {
    std::string text = tokens[at++].text;
    node = binary(std::move(node), power(), text);
  }
  return node;
}

Pointer Parser::power() {
  Pointer node = unary(true);
  while (takeOperator("**")) // from left to right, as Jinja has it
    node = binary(std::move(node), unary(true), "**");
  return node;
}

Pointer Parser::unary(bool filters) {
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

Pointer Parser::number() {
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

Pointer Parser::primary() {
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

Pointer Parser::dictionary() {
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
void Parser::callArguments(Expression &call) {
  while (!takeOperator(")")) {
    bool named = is(Token::Kind::Name) &&
                 tokens[at + 1].kind == Token::Kind::Operator &&
                 tokens[at + 1].text == "=";
    if (named) {
      call.names.push_back(name());
      ++at;
    } else if (!call.names.empty()) {
      fail("an argument without name after one that has it");
    }
    add(call, conditional());
    if (!isOperator(")"))
      expectOperator(",");
  }
}

Pointer Parser::subscript(Pointer node) {
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

Pointer Parser::postfix(Pointer node) {
  // A long chain is as deep a tree as brackets within brackets.
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

Pointer Parser::filtersAndTests(Pointer node) {
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

Pointer Parser::test(Pointer node) {
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

Block parseTemplate(std::string_view source) { return Parser(source).parse(); }

} // namespace tessera::chat
