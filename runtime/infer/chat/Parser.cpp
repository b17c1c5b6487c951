// Parses statements of a template by Jinja's grammar.
#include "runtime/infer/chat/ExpressionParser.h"

#include <algorithm>
#include <utility>

namespace tessera::chat {

namespace {
class Parser : ExpressionParser {
public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}
  Block parse() {
    Block block = statements({});
    if (!is(Token::Kind::End))
      fail("an unexpected end tag");
    return block;
  }

private:
  Block statements(std::initializer_list<std::string_view> ends);
  void statement(const std::string &name, Block &out);
  Statement ifStatement();
  Statement forStatement();
  Statement setStatement();
  Statement macro();
  std::vector<std::string> targetNames(bool &unpacks);
  void endBlock(std::string_view name);

  size_t loops = 0; ///< around the statement, within its macro
};
} // namespace

/// Parses statements up to a tag whose name is in `ends`, which is not
/// consumed.
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

/// Consumes the end tag `name`.
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
      fail("a parameter without default after one with a default");
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

Block parseTemplate(std::string_view source) { return Parser(source).parse(); }

} // namespace tessera::chat
