// dropout: what is verified, what it means in primitives, its gradient and its
// sharding rule.
#include "dialects/graph/GraphComposite.h"
#include "dialects/graph/GraphVerify.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

LogicalResult DropoutOp::verify() {
  double rate = getRate().convertToDouble();
  if (!(rate >= 0.0 && rate < 1.0))
    return emitOpError() << "expects a rate in [0, 1), got " << rate;
  return expectStream(*this, getStream());
}

SmallVector<Value> DropoutOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  double rate = getRate().convertToDouble();
  if (rate == 0.0)
    return {getInput()};
  Value uniform = builder.create<RandomOp>(
      getLoc(),
      RankedTensorType::get(shapeOf(getInput()), builder.getF32Type()),
      getSeed(), getStep(), getOffset(), getStream(), RandomKind::uniform);
  Value keep =
      e.compare(uniform, ComparePredicate::ge, e.splatLike(rate, uniform));
  // In f32, because 1/(1-rate) rounded to bf16 would bias the sum.
  Value x = e.convert(getInput(), statisticsType(getInput()));
  Value scaled =
      e.select(keep, e.mul(x, 1.0 / (1.0 - rate)), e.splatLike(0.0, x));
  return {e.convert(scaled, tensorType(getInput()).getElementType())};
}

// The same elements are kept.
SmallVector<Value> DropoutOp::buildVjp(OpBuilder &builder,
                                       ValueRange cotangents) {
  SmallVector<Value> result = none(*this);
  if (!cotangents[0])
    return result;
  auto again = cast<DropoutOp>(builder.clone(**this));
  again.getInputMutable().assign(cotangents[0]);
  result[0] = again.getResult();
  return result;
}

// Random masks are numbered through the whole tensor. As for graph.random, only
// the first dimension is shardable, because a shard has one offset.
OpRule DropoutOp::getShardingRule() {
  OpRule rule = wholeRule(*this);
  if (!rule.results[0].empty()) {
    rule.operands[0] = rule.results[0];
    rule.loops[rule.results[0][0][0]].kind = LoopKind::parallel;
  }
  return rule;
}
