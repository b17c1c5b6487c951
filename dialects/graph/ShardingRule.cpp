#include "dialects/graph/ShardingRule.h"
#include "dialects/graph/GraphOps.h"

using namespace mlir;
using namespace tessera::graph;

OpRule::Dims OpRule::loopsOf(Value value, LoopKind kind) {
  Dims dims;
  for (int64_t size : tensorType(value).getShape())
    dims.push_back({loopDim(size, kind)});
  return dims;
}

OpRule tessera::graph::detail::pointwiseRule(Operation *op,
                                             OpRule::Sets linear) {
  OpRule rule;
  OpRule::Dims dims = rule.loopsOf(op->getResult(0));
  rule.operands.assign(op->getNumOperands(), dims);
  rule.results.assign(op->getNumResults(), dims);
  // A division of integers truncates: a sum of quotients is not the quotient.
  const bool truncates =
      isa<DivOp>(op) &&
      !isa<FloatType>(tensorType(op->getResult(0)).getElementType());
  if (!truncates)
    rule.linear = std::move(linear);
  rule.isPointwise = true;
  return rule;
}

OpRule tessera::graph::detail::rowRule(Operation *op) {
  OpRule rule;
  OpRule::Dims dims = rule.loopsOf(op->getResult(0));
  rule.loops.back().kind = LoopKind::whole;
  rule.operands.push_back(dims);
  for (unsigned i = 1; i < op->getNumOperands(); ++i)
    rule.operands.push_back({dims.back()});
  rule.results = {dims};
  return rule;
}

OpRule tessera::graph::detail::wholeRule(Operation *op) {
  OpRule rule;
  for (Value operand : op->getOperands())
    rule.operands.push_back(rule.loopsOf(operand, LoopKind::whole));
  for (Value result : op->getResults())
    rule.results.push_back(rule.loopsOf(result, LoopKind::whole));
  return rule;
}

OpRule::Sets tessera::graph::detail::linearConversion(Operation *op) {
  Type from = tensorType(op->getOperand(0)).getElementType(),
       to = tensorType(op->getResult(0)).getElementType();
  bool extends = isa<FloatType>(from) && isa<FloatType>(to) &&
                 from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth();
  return extends ? OpRule::Sets{{0}} : OpRule::Sets{};
}
