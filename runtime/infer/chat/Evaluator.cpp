#include "runtime/infer/chat/Evaluator.h"
#include "runtime/infer/chat/Strings.h"

#include <algorithm>

namespace tessera::chat {

using Kind = Value::Kind;

const Value *Scope::find(const std::string &name) const {
  for (const Scope *scope = this; scope; scope = scope->outer.get())
    for (const auto &[known, value] : scope->variables)
      if (known == name)
        return &value;
  return nullptr;
}

void Scope::set(const std::string &name, Value value) {
  for (auto &[known, place] : variables)
    if (known == name) {
      place = std::move(value);
      return;
    }
  variables.emplace_back(name, std::move(value));
}

const Value *Arguments::find(size_t place, std::string_view name) const {
  if (place < positional.size())
    return &positional[place];
  for (const auto &[known, value] : named)
    if (known == name)
      return &value;
  return nullptr;
}

void Evaluator::chargeSteps(uint64_t count) {
  steps += count;
  if (steps > options.budget.steps)
    throw TemplateError{
        fmt::format("more than {} steps", options.budget.steps)};
}

void Evaluator::chargeBytes(size_t count) {
  bytes += count;
  if (bytes > options.budget.workingBytes)
    throw TemplateError{fmt::format("more than {} bytes of strings and lists",
                                    options.budget.workingBytes)};
}

void Evaluator::chargeWalk(const Value &value, uint64_t times) {
  uint64_t visits = 1 + value.weight() / 64;
  chargeSteps(__builtin_mul_overflow(visits, times, &visits)
                  ? options.budget.steps
                  : std::min(visits, options.budget.steps));
}

std::string Evaluator::text(const Value &value) {
  // Strings were charged when they were made, and numbers are short.
  if (value.isList() || value.is(Kind::Dict))
    chargeBytes(std::min(value.weight(), options.budget.workingBytes + 1));
  return toText(value);
}

bool Evaluator::equal(const Value &left, const Value &right) {
  chargeWalk(left.weight() < right.weight() ? left : right);
  return left == right;
}

int Evaluator::order(const Value &left, const Value &right) {
  chargeWalk(left.weight() < right.weight() ? left : right);
  return compare(left, right);
}

void Evaluator::print(std::string_view text) {
  if (out.size() + text.size() > options.budget.outputBytes)
    throw TemplateError{
        fmt::format("more than {} bytes of text", options.budget.outputBytes)};
  out += text;
}

std::string Evaluator::render(const Block &block, const Dict &variables) {
  scope = std::make_shared<Scope>();
  for (const auto &[name, value] : variables.members)
    scope->set(name, value);
  // Variables of the template must not overwrite those that it is given.
  auto inner = std::make_shared<Scope>();
  inner->outer = std::move(scope);
  scope = std::move(inner);
  run(block);
  return std::move(out);
}

Evaluator::Flow Evaluator::run(const Block &block) {
  for (const Statement &statement : block)
    if (Flow flow = run(statement); flow != Flow::Next)
      return flow;
  return Flow::Next;
}

// Statements nest as expressions do: a macro may call itself within many.
Evaluator::Flow Evaluator::run(const Statement &statement) {
  chargeSteps();
  enter(statement.line);
  Flow flow = runInside(statement);
  --depth;
  return flow;
}

Evaluator::Flow Evaluator::runInside(const Statement &statement) {
  switch (statement.kind) {
  case Statement::Kind::Text:
    print(statement.text);
    return Flow::Next;
  case Statement::Kind::Print:
    print(this->text(evaluate(*statement.expression)));
    return Flow::Next;
  case Statement::Kind::If:
    return run(evaluate(*statement.expression).truthy() ? statement.body
                                                        : statement.otherwise);
  case Statement::Kind::For:
    return runFor(statement);
  case Statement::Kind::Set:
    runSet(statement);
    return Flow::Next;
  case Statement::Kind::SetBlock: {
    std::string outer = std::exchange(out, {});
    ++captures;
    auto before = scope;
    scope = std::make_shared<Scope>();
    scope->outer = before;
    Flow flow = run(statement.body);
    scope = before;
    --captures;
    std::string text = std::exchange(out, std::move(outer));
    scope->set(statement.targets[0], make(std::move(text)));
    return flow;
  }
  case Statement::Kind::Macro: {
    auto macro = std::make_shared<Function>();
    macro->kind = Function::Kind::Macro;
    macro->name = statement.text;
    macro->macro = &statement;
    macro->scope = scope;
    scope->set(statement.text, std::shared_ptr<const Function>(macro));
    return Flow::Next;
  }
  case Statement::Kind::Group:
    return runGeneration(statement);
  case Statement::Kind::Break:
    return Flow::Break;
  case Statement::Kind::Continue:
    return Flow::Continue;
  }
  return Flow::Next;
}

Evaluator::Flow Evaluator::runGeneration(const Statement &statement) {
  std::vector<TextSpan> *spans = std::exchange(generated, nullptr);
  if (spans && captures > 0)
    throw TemplateError{fmt::format("line {}: a generation block in a macro or "
                                    "a set block is not supported",
                                    statement.line)};
  const size_t begin = out.size();
  Flow flow = run(statement.body);
  if (spans && out.size() > begin)
    spans->push_back({begin, out.size()});
  generated = spans;
  return flow;
}

/// Assigns `value`, or its elements, to the targets.
void Evaluator::assign(const Statement &statement, const Value &value) {
  if (!statement.unpacks) {
    scope->set(statement.targets[0], value);
    return;
  }
  List parts = elements(value);
  if (parts.size() != statement.targets.size())
    throw TemplateError{fmt::format("{} values for {} names", parts.size(),
                                    statement.targets.size())};
  for (size_t i = 0; i < parts.size(); ++i)
    scope->set(statement.targets[i], parts[i]);
}

void Evaluator::runSet(const Statement &statement) {
  Value value = evaluate(*statement.expression);
  if (statement.text.empty())
    return assign(statement, value);
  Value target = lookUp(statement.targets[0]);
  if (!target.is(Kind::Namespace))
    throw TemplateError{fmt::format("{} is not a namespace, so it has no "
                                    "members to set",
                                    statement.targets[0])};
  if (value.is(Kind::Namespace))
    throw TemplateError{"a namespace within another value is not supported"};
  target.dict().set(statement.text, std::move(value));
}

/// The members of `loop`.
static Value loopVariable(const List &items, size_t i, uint64_t depth) {
  auto loop = std::make_shared<Dict>();
  auto count = static_cast<int64_t>(items.size());
  auto index = static_cast<int64_t>(i);
  loop->set("index", index + 1);
  loop->set("index0", index);
  loop->set("revindex", count - index);
  loop->set("revindex0", count - index - 1);
  loop->set("first", i == 0);
  loop->set("last", i + 1 == items.size());
  loop->set("length", count);
  loop->set("depth", static_cast<int64_t>(depth));
  loop->set("depth0", static_cast<int64_t>(depth) - 1);
  if (i > 0)
    loop->set("previtem", items[i - 1]);
  if (i + 1 < items.size())
    loop->set("nextitem", items[i + 1]);
  return loop;
}

Evaluator::Flow Evaluator::runFor(const Statement &statement) {
  Value container = evaluate(*statement.expression);
  List items = elements(container);
  auto outer = scope;
  auto enter = [&](const Value &item) {
    chargeSteps();
    scope = std::make_shared<Scope>();
    scope->outer = outer;
    assign(statement, item);
  };
  if (statement.condition) {
    List kept;
    for (const Value &item : items) {
      enter(item);
      if (evaluate(*statement.condition).truthy())
        kept.push_back(item);
    }
    items = std::move(kept);
  }
  scope = outer;
  if (items.empty())
    return run(statement.otherwise);
  Flow flow = Flow::Next;
  ++loops;
  for (size_t i = 0; i < items.size() && flow != Flow::Break; ++i) {
    enter(items[i]);
    chargeSteps(8); // for the members of `loop`
    scope->set("loop", loopVariable(items, i, loops));
    flow = run(statement.body);
  }
  --loops;
  scope = outer;
  return Flow::Next;
}

List Evaluator::elements(const Value &value) {
  List list;
  switch (value.kind()) {
  case Kind::Undefined:
    return {};
  case Kind::List:
  case Kind::Tuple:
    chargeBytes(value.list().size() * sizeof(Value));
    return value.list();
  case Kind::String:
    chargeBytes(characters(value.text()) * perText);
    for (char32_t c : codePoints(value.text()))
      list.push_back(make(fromCodePoints({&c, 1})));
    break;
  case Kind::Dict:
    chargeBytes(value.dict().members.size() * perText);
    for (const auto &[name, member] : value.dict().members)
      list.push_back(make(name));
    break;
  default:
    throw TemplateError{fmt::format("a {} has no elements", value.typeName())};
  }
  return list;
}

bool Evaluator::contains(const Value &container, const Value &element) {
  if (container.is(Kind::String)) {
    if (!element.is(Kind::String))
      throw TemplateError{
          fmt::format("a string cannot contain a {}", element.typeName())};
    return container.text().find(element.text()) != std::string::npos;
  }
  if (container.is(Kind::Dict) && (element.isList() || element.is(Kind::Dict)))
    throw TemplateError{fmt::format("a {} is not a valid key of a dictionary",
                                    element.typeName())};
  if (container.is(Kind::Dict))
    return element.is(Kind::String) && container.dict().find(element.text());
  if (container.isList()) {
    chargeWalk(container);
    return std::find(container.list().begin(), container.list().end(),
                     element) != container.list().end();
  }
  return !elements(container).empty(); // an error, or false
}

Value Evaluator::lookUp(const std::string &name) {
  if (const Value *value = scope->find(name))
    return *value;
  static constexpr std::string_view globals[] = {
      "range", "dict", "namespace", "raise_exception", "strftime_now"};
  if (std::find(std::begin(globals), std::end(globals), name) ==
      std::end(globals))
    return Value::undefined("'" + name + "'");
  auto function = std::make_shared<Function>();
  function->name = name;
  return std::shared_ptr<const Function>(std::move(function));
}

Value Evaluator::dictionary(const Expression &node) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i < node.arguments.size(); i += 2) {
    Value name = evaluate(*node.arguments[i]);
    if (!name.is(Kind::String))
      throw TemplateError{fmt::format("keys of a dictionary must be strings, "
                                      "got a {}",
                                      name.typeName())};
    dict->set(name.text(), evaluate(*node.arguments[i + 1]));
  }
  chargeBytes(node.arguments.size() * 64);
  return dict;
}

Arguments Evaluator::arguments(const Expression &node, size_t first) {
  Arguments result;
  size_t positional = node.arguments.size() - node.names.size();
  for (size_t i = first; i < node.arguments.size(); ++i)
    if (i < positional)
      result.positional.push_back(evaluate(*node.arguments[i]));
    else
      result.named.emplace_back(node.names[i - positional],
                                evaluate(*node.arguments[i]));
  return result;
}

Value Evaluator::call(const Expression &node) {
  Value target = evaluate(*node.arguments[0]);
  if (target.is(Kind::Undefined))
    target.failUndefined();
  if (!target.is(Kind::Function))
    throw TemplateError{
        fmt::format("a {} cannot be called", target.typeName())};
  Arguments given = arguments(node, 1);
  const Function &function = target.function();
  switch (function.kind) {
  case Function::Kind::Macro:
    return callMacro(function, given);
  case Function::Kind::Global:
    return callGlobal(function.name, given);
  case Function::Kind::Method:
    return callMethod(function, given);
  }
  return {};
}

Value Evaluator::callMacro(const Function &macro, const Arguments &given) {
  const Statement &body = *macro.macro;
  auto defined = macro.scope.lock();
  if (!defined)
    throw TemplateError{
        fmt::format("the macro {} outlived its loop", macro.name)};
  if (given.positional.size() > body.targets.size())
    throw TemplateError{fmt::format("macro {} takes {} arguments, not {}",
                                    macro.name, body.targets.size(),
                                    given.positional.size())};
  for (const auto &[name, value] : given.named)
    if (std::find(body.targets.begin(), body.targets.end(), name) ==
        body.targets.end())
      throw TemplateError{
          fmt::format("macro {} takes no argument {}", macro.name, name)};
  auto caller = std::exchange(scope, std::make_shared<Scope>());
  scope->outer = std::move(defined);
  std::string outer = std::exchange(out, {});
  ++captures;
  size_t plain = body.targets.size() - body.defaults.size();
  for (size_t i = 0; i < body.targets.size(); ++i) {
    const Value *value = given.find(i, body.targets[i]);
    if (value)
      scope->set(body.targets[i], *value);
    else if (i >= plain)
      scope->set(body.targets[i], evaluate(*body.defaults[i - plain]));
    else
      scope->set(body.targets[i],
                 Value::undefined("parameter '" + body.targets[i] + "'"));
  }
  uint64_t loopsOutside = std::exchange(loops, 0);
  run(body.body);
  loops = loopsOutside;
  --captures;
  scope = std::move(caller);
  return make(std::exchange(out, std::move(outer)));
}

void Evaluator::enter(uint64_t line) {
  if (++depth > options.budget.depth)
    throw TemplateError{
        fmt::format("line {}: deeper than {} expressions, statements and calls",
                    line, options.budget.depth)};
}

Value Evaluator::evaluate(const Expression &node) {
  chargeSteps();
  enter(node.line);
  Value result = evaluateNode(node);
  --depth;
  return result;
}

Value Evaluator::evaluateNode(const Expression &node) {
  auto argument = [&](size_t i) { return evaluate(*node.arguments[i]); };
  switch (node.kind) {
  case Expression::Kind::Constant:
    return node.value;
  case Expression::Kind::Name:
    return lookUp(node.text);
  case Expression::Kind::List:
  case Expression::Kind::Tuple: {
    List list;
    for (const auto &element : node.arguments)
      list.push_back(evaluate(*element));
    return make(std::move(list),
                node.kind == Expression::Kind::List ? Kind::List : Kind::Tuple);
  }
  case Expression::Kind::Dict:
    return dictionary(node);
  case Expression::Kind::Attribute:
    return attribute(argument(0), node.text);
  case Expression::Kind::Item: {
    Value container = argument(0);
    return item(container, argument(1));
  }
  case Expression::Kind::Slice:
    return slice(node);
  case Expression::Kind::Call:
    return call(node);
  case Expression::Kind::Filter: {
    Value input = argument(0);
    return filter(node.text, input, arguments(node, 1));
  }
  case Expression::Kind::Test: {
    Value input = argument(0);
    return test(node.text, input, arguments(node, 1));
  }
  case Expression::Kind::Unary:
    return unary(node);
  case Expression::Kind::Binary:
    return binary(node);
  case Expression::Kind::Compare:
    return comparison(node);
  case Expression::Kind::And:
  case Expression::Kind::Or: {
    Value left = argument(0);
    bool decided = left.truthy() == (node.kind == Expression::Kind::Or);
    return decided ? left : argument(1);
  }
  case Expression::Kind::Conditional:
    if (argument(0).truthy())
      return argument(1);
    return node.arguments[2] ? argument(2)
                             : Value::undefined("an inline if without else");
  }
  return {};
}

} // namespace tessera::chat
