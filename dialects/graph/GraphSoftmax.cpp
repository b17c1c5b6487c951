// softmax: what is verified, what it means in primitives, its gradient and its
// sharding rule.
#include "dialects/graph/GraphComposite.h"
#include <limits>

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

LogicalResult SoftmaxOp::verify() {
  if (tensorType(getInput()).getRank() == 0)
    return emitOpError("expects an input of rank 1 or more");
  return success();
}

Exponentials tessera::graph::detail::exponentials(Emitter &e, Value x) {
  // A row of -inf would give -inf - -inf; the least finite maximum gives 0.
  Value max = e.maxLast(x);
  max = e.max(max, e.splatLike(std::numeric_limits<float>::lowest(), max));
  Value value = e.exp(e.sub(x, e.broadcastFirst(max, shapeOf(x))));
  Value sum = e.sumLast(value);
  return {value, sum, e.add(max, e.unary<LogOp>(sum))};
}

// A visible row sums to 1 or more, so that only rows of zeros are changed.
static Value avoidZero(Emitter &e, Value sum) {
  return e.max(sum, e.splatLike(std::numeric_limits<float>::min(), sum));
}

SmallVector<Value> SoftmaxOp::decompose(OpBuilder &builder) {
  Emitter e(builder, getLoc());
  Value x = e.convert(getInput(), statisticsType(getInput()));
  Exponentials exps = exponentials(e, x);
  Value sum = e.broadcastFirst(avoidZero(e, exps.sum), shapeOf(x));
  return {e.convert(e.div(exps.value, sum),
                    tensorType(getInput()).getElementType())};
}

// y (g - Σ g y)
SmallVector<Value> SoftmaxOp::buildVjp(OpBuilder &builder,
                                       ValueRange cotangents) {
  if (!cotangents[0])
    return none(*this);
  Emitter e(builder, getLoc());
  Type type = statisticsType(getInput());
  Value y = e.convert(getResult(), type), g = e.convert(cotangents[0], type);
  Value dot = e.broadcastFirst(e.sumLast(e.mul(g, y)), shapeOf(y));
  return {convertLike(e, e.mul(y, e.sub(g, dot)), getInput())};
}

OpRule SoftmaxOp::getShardingRule() { return rowRule(*this); }
