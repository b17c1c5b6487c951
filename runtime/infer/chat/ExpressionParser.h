// Parses expressions of a template by recursive descent over its tokens.
// Parser.cpp parses statements.
#pragma once
#include "runtime/infer/chat/Ast.h"
#include "runtime/infer/chat/Lexer.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::chat {

/// Parses expressions with Jinja's precedence, and holds the position among the
/// tokens. Throws TemplateError.
class ExpressionParser {
protected:
  using Pointer = Expression::Pointer;

  explicit ExpressionParser(std::string_view source)
      : tokens(tokenize(source)) {}

  /// Expressions separated by commas are a tuple; with `withCondition` they may
  /// be `a if b else c`.
  Pointer tuple(bool withCondition);
  Pointer conditional();

  /// A level of nesting during its lifetime.
  struct Nested {
    explicit Nested(ExpressionParser &parser) : parser(parser) {
      if (++parser.depth > maxNesting)
        parser.fail("nested too deeply");
    }
    ~Nested() { --parser.depth; }
    ExpressionParser &parser;
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
  [[noreturn]] void fail(std::string_view what) const {
    throw TemplateError{fmt::format("line {}: {}", peek().line, what)};
  }

  std::vector<Token> tokens;
  size_t at = 0;

private:
  // From the loosest to the tightest binding.
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

  Pointer make(Expression::Kind kind) const;
  Pointer make(Expression::Kind kind, Pointer argument) const;
  void add(Expression &node, Pointer argument) const;
  Pointer constant(Value value) const;

  size_t depth = 0;
};

} // namespace tessera::chat
