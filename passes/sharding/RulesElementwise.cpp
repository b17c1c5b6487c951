// Elementwise ops share one rule; this file says in which operands they are
// linear.
#include "passes/sharding/RuleTable.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

// Sums: both operands are partial.
static OpRule linearTogether(Operation *op) {
  OpRule rule = pointwiseRule(op);
  rule.linear = {{0, 1}};
  return rule;
}

static OpRule linearInEach(Operation *op) {
  OpRule rule = pointwiseRule(op);
  rule.linear = {{0}, {1}};
  return rule;
}

static OpRule linearInFirst(Operation *op) {
  OpRule rule = pointwiseRule(op);
  rule.linear = {{0}};
  return rule;
}

// Rounding is not linear: only conversions to a wider type are.
static OpRule convertRule(graph::ConvertOp op) {
  OpRule rule = pointwiseRule(op);
  Type from = op.getInput().getType().getElementType(),
       to = op.getResult().getType().getElementType();
  if (isa<FloatType>(from) && isa<FloatType>(to) &&
      from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth())
    rule.linear = {{0}};
  return rule;
}

void sharding::addElementwiseRules(RuleTable &table) {
  table.add<graph::AddOp>(linearTogether);
  table.add<graph::SubOp>(linearTogether);
  table.add<graph::MulOp>(linearInEach);
  table.add<graph::DivOp>(linearInFirst);
  table.add<graph::NegOp>(linearInFirst);
  table.add<graph::ConvertOp>(convertRule);
}
