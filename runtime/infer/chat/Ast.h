// A parsed template.
#pragma once
#include "runtime/infer/chat/Value.h"

#include <memory>
#include <string>
#include <vector>

namespace tessera::chat {

struct Expression {
  enum class Kind : uint8_t {
    Constant,  // value
    Name,      // text
    List,      // arguments
    Tuple,     // arguments
    Dict,      // arguments: name, value, name, value, …
    Attribute, // arguments[0].text
    Item,      // arguments[0][arguments[1]]
    Slice,     // arguments[0][start:stop:step], each of which may be null
    Call,      // arguments[0](arguments[1…], named)
    Filter,    // arguments[0] | text(arguments[1…], named)
    Test,      // arguments[0] is text(arguments[1…])
    Unary,     // text: + - not
    Binary,    // text: + - * / // % ** ~
    Compare,   // arguments[0] names[0] arguments[1] names[1] …
    And,
    Or,
    Conditional // arguments: condition, then, else (may be null)
  };
  using Pointer = std::unique_ptr<Expression>;
  Kind kind = Kind::Constant;
  uint32_t line = 0;
  uint32_t height = 1; // of the subtree
  std::string text;
  Value value;
  std::vector<Pointer> arguments;
  std::vector<std::string> names; // of the last arguments (Call, Filter, Test)
};

struct Statement {
  enum class Kind : uint8_t {
    Text,     // text
    Print,    // expression
    If,       // expression, body, otherwise
    For,      // targets in expression if condition: body; otherwise
    Set,      // targets = expression; text: the name in a namespace
    SetBlock, // targets[0] = what body prints
    Macro,    // text(targets, defaults): body
    Group,    // body (generation blocks)
    Break,
    Continue
  };
  Kind kind = Kind::Text;
  uint32_t line = 0;
  std::string text;
  std::vector<std::string> targets;
  bool unpacks = false; // targets are a tuple
  Expression::Pointer expression, condition;
  std::vector<Expression::Pointer> defaults; // of the last parameters
  std::vector<Statement> body, otherwise;
};

using Block = std::vector<Statement>;

/// Parses a template. Unknown statements, filters and tests, and nesting deeper
/// than maxNesting, are errors. Throws TemplateError.
Block parseTemplate(std::string_view source);

inline constexpr size_t maxNesting = 200;

/// Whether a filter or a test of that name exists.
bool isFilter(const std::string &name);
bool isTest(const std::string &name);

} // namespace tessera::chat
