// Rows on their way to their groups and back. On whole tensors both ops are
// their operands, so that all there is to say is what fits, and that each is
// the other's gradient.
#include "dialects/graph/GraphComposite.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "dialects/graph/GraphVerify.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

#define GET_OP_CLASSES
#include "dialects/graph/GraphExchangeOps.cpp.inc"

// A row for each place.
template <typename Op> static LogicalResult verifyExchange(Op op) {
  RankedTensorType rows = tensorType(op.getRows()),
                   slots = tensorType(op.getSlots()),
                   groups = tensorType(op.getGroups());
  if (failed(expectRank(op, "rows", rows, 2)) ||
      failed(expectRank(op, "slots", slots, 2)) ||
      failed(expectRank(op, "groups", groups, 1)))
    return failure();
  if (groups.getDimSize(0) < 2)
    return op.emitOpError("expects at least one group");
  return expectShape(op, "rows", rows,
                     {slots.getNumElements(), rows.getDimSize(1)});
}

LogicalResult SendRowsOp::verify() { return verifyExchange(*this); }

LogicalResult ReturnRowsOp::verify() { return verifyExchange(*this); }

SmallVector<Value> SendRowsOp::decompose(OpBuilder &) {
  return {getRows(), getGroups()};
}

SmallVector<Value> ReturnRowsOp::decompose(OpBuilder &) { return {getRows()}; }

SmallVector<Value> SendRowsOp::buildVjp(OpBuilder &builder,
                                        ValueRange cotangents) {
  SmallVector<Value> result(getNumOperands());
  if (Value g = cotangents[0])
    result[0] = builder.create<ReturnRowsOp>(
        getLoc(), g, getSlots(), getGroups(), getAlways(), getBufferAttr());
  return result;
}

SmallVector<Value> ReturnRowsOp::buildVjp(OpBuilder &builder,
                                          ValueRange cotangents) {
  SmallVector<Value> result(getNumOperands());
  if (Value g = cotangents[0])
    result[0] = builder
                    .create<SendRowsOp>(getLoc(), g, getSlots(), getGroups(),
                                        getAlways(), getBufferAttr())
                    .getSent();
  return result;
}

int64_t SendRowsOp::getFlops() { return 0; }

int64_t ReturnRowsOp::getFlops() { return 0; }

//===--- sharding rules -------------------------------------------------===//

// rows [tokens × k, width], slots [tokens, k], offsets [groups + 1] → the same
// rows.
template <typename Op> static OpRule exchangeRule(Op op) {
  OpRule rule;
  OpRule::Dims slots = packedSlots(rule, op.getSlots()),
               groups = rule.loopsOf(op.getGroups(), LoopKind::whole);
  OpRule::Dims rows{{slots[0][0], slots[1][0]},
                    {rule.loopDim(tensorType(op.getRows()).getDimSize(1))}};
  rule.operands = {rows, slots, groups};
  rule.results = {rows};
  rule.ownOperands = {0, 1, 2}, rule.ownResults = {0};
  return rule;
}

OpRule SendRowsOp::getShardingRule() {
  OpRule rule = exchangeRule(*this);
  rule.results.push_back(rule.operands[2]);
  rule.ownResults.push_back(1);
  rule.sentResult = 0;
  return rule;
}

OpRule ReturnRowsOp::getShardingRule() {
  OpRule rule = exchangeRule(*this);
  rule.linear = {{0}};
  rule.sentOperand = 0;
  return rule;
}
