// Finding a rule: by the op's entry, or as an elementwise op by its interface.
#include "passes/sharding/RuleTable.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

OpRule::Dims OpRule::loopsOf(Value value, LoopKind kind) {
  Dims dims;
  for (int64_t size : graph::tensorType(value).getShape())
    dims.push_back({loopDim(size, kind)});
  return dims;
}

OpRule sharding::pointwiseRule(Operation *op) {
  OpRule rule;
  OpRule::Dims dims = rule.loopsOf(op->getResult(0));
  rule.operands.assign(op->getNumOperands(), dims);
  rule.results.assign(op->getNumResults(), dims);
  rule.isPointwise = true;
  return rule;
}

OpRule sharding::wholeRule(Operation *op) {
  OpRule rule;
  for (Value operand : op->getOperands())
    rule.operands.push_back(rule.loopsOf(operand, LoopKind::whole));
  for (Value result : op->getResults())
    rule.results.push_back(rule.loopsOf(result, LoopKind::whole));
  return rule;
}

static const RuleTable &ruleTable() {
  static const RuleTable table = [] {
    RuleTable built;
    addElementwiseRules(built);
    addShapeRules(built);
    addContractionRules(built);
    addCompositeRules(built);
    addRoutingRules(built);
    return built;
  }();
  return table;
}

FailureOr<OpRule> sharding::ruleOf(Operation *op) {
  if (auto rule = ruleTable().find(op))
    return rule(op);
  if (isa<graph::Elementwise>(op))
    return pointwiseRule(op);
  return op->emitOpError("has no sharding rule; passes/sharding/Rules*.cpp "
                         "have those of the other ops");
}
