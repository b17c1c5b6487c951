// Runs a parsed template.
#pragma once
#include "runtime/infer/chat/Ast.h"
#include "runtime/infer/chat/ChatTemplate.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera::chat {

/// Variables of a block; the innermost definition of a name counts.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<std::string, Value>> variables;
  const Value *find(const std::string &name) const;
  void set(const std::string &name, Value value);
};

/// Something that can be called.
struct Function {
  enum class Kind : uint8_t { Macro, Global, Method };
  Kind kind = Kind::Global;
  std::string name;
  Value self;                       // Method
  const Statement *macro = nullptr; // Macro
  std::weak_ptr<Scope> scope;       // Macro: where it was defined
};

/// Arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  /// The argument at `position` or called `name`; null if there is none.
  const Value *find(size_t place, std::string_view name) const;
};

/// One rendering. Throws TemplateError.
class Evaluator {
public:
  explicit Evaluator(const RenderOptions &options) : options(options) {}
  std::string render(const Block &block, const Dict &variables);
  /// Where render() adds what generation blocks print; null: nowhere.
  void markInto(std::vector<TextSpan> *spans) { generated = spans; }

  /// Charges a container or a string of that size.
  void chargeBytes(size_t bytes);
  void chargeSteps(uint64_t count = 1);
  /// A string, charged.
  Value make(std::string text) {
    chargeBytes(text.size());
    return text;
  }
  Value make(List list, Value::Kind kind = Value::Kind::List) {
    chargeBytes(list.size() * sizeof(Value));
    return {std::move(list), kind};
  }

  /// Charges a traversal of a value, `times` as often.
  void chargeWalk(const Value &value, uint64_t times = 1);
  /// str(value), charged.
  std::string text(const Value &value);
  /// left == right and their order, charged.
  bool equal(const Value &left, const Value &right);
  int order(const Value &left, const Value &right);

  /// The elements of a list, characters of a string, keys of a dictionary; none
  /// for undefined values.
  List elements(const Value &value);
  bool contains(const Value &container, const Value &element);
  /// value.name: Python's attributes first, then members.
  Value attribute(const Value &value, const std::string &name);
  /// value[index]; undefined if there is none.
  Value item(const Value &value, const Value &index);

  // Filters.cpp, Tests.cpp and Methods.cpp
  Value filter(const std::string &name, const Value &input,
               const Arguments &arguments);
  bool test(const std::string &name, const Value &input,
            const Arguments &arguments);
  Value callMethod(const Function &method, const Arguments &arguments);
  Value callGlobal(const std::string &name, const Arguments &arguments);

private:
  enum class Flow : uint8_t { Next, Break, Continue };
  Flow run(const Block &block);
  Flow run(const Statement &statement);
  Flow runInside(const Statement &statement);
  /// Charges a level of depth, which the caller releases.
  void enter(uint64_t line);
  Flow runFor(const Statement &statement);
  Flow runGeneration(const Statement &statement);
  void runSet(const Statement &statement);
  void assign(const Statement &statement, const Value &value);
  void print(std::string_view text);

  Value evaluate(const Expression &node);
  Value evaluateNode(const Expression &node);
  Value unary(const Expression &node);
  Value binary(const Expression &node);
  Value integers(char operation, int64_t left, int64_t right);
  bool comparison(const Expression &node);
  Value slice(const Expression &node);
  Value dictionary(const Expression &node);
  Value call(const Expression &node);
  Value callMacro(const Function &macro, const Arguments &arguments);
  /// The arguments of `node` from `first` on.
  Arguments arguments(const Expression &node, size_t first);
  Value lookUp(const std::string &name);

  const RenderOptions &options;
  std::shared_ptr<Scope> scope;
  std::string out;
  /// Macros and set blocks around the statement: `out` is not the text.
  uint64_t captures = 0;
  std::vector<TextSpan> *generated = nullptr; ///< null within a block
  uint64_t steps = 0, bytes = 0, depth = 0, loops = 0;
};

} // namespace tessera::chat
