// segment_sum: what is verified, what it means in primitives, its gradient and
// sharding rule.
#include "dialects/graph/GraphComposite.h"
#include "dialects/graph/GraphScanOps.h"
#include "dialects/graph/GraphVerify.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::graph::detail;

LogicalResult SegmentSumOp::verify() {
  RankedTensorType input = tensorType(getInput()),
                   result = tensorType(getResult());
  if (input.getRank() == 0)
    return emitOpError("expects an input of rank 1 or more");
  const int64_t n = input.getShape().back();
  if (n < 1 || n > 256)
    return emitOpError("expects rows of 1 to 256 elements, got ") << n;
  SmallVector<int64_t> shape(input.getShape());
  shape.push_back(n);
  return failed(expectShape(*this, "a result", result, shape))
             ? failure()
             : expectSameElement(*this, "input", input, "result", result);
}

static Value compareIndices(Emitter &e, int64_t n, ComparePredicate predicate) {
  auto type = RankedTensorType::get({n, n}, e.builder().getI32Type());
  return e.compare(e.iota(type, 1), predicate, e.iota(type, 0));
}

// x [rows, n, n] where the column's index compares so to the row's, else 0.
static Value whereColumns(Emitter &e, Value x, ComparePredicate predicate) {
  ArrayRef<int64_t> shape = shapeOf(x);
  Value holds = compareIndices(e, shape[2], predicate);
  return e.select(e.broadcast(holds, {1, 2}, shape), x, e.zeros(tensorType(x)));
}

// A sum is kept as a multiple of a unit and the rest. With terms of at most 128
// and at most 256 of them, multiples are below 2^24, so that their sums and
// differences are exact in f32.
SmallVector<Value> SegmentSumOp::decompose(OpBuilder &builder) {
  constexpr double kMost = 128, kUnit = 0x1p-9;
  Emitter e(builder, getLoc());
  Type type = statisticsType(getInput());
  const int64_t n = shapeOf(getInput()).back(),
                rows = tensorType(getInput()).getNumElements() / n;
  const SmallVector<int64_t> wide{rows, n, n};
  Value x = e.reshape(e.convert(getInput(), type), {rows, n});
  x = e.max(x, e.splatLike(-kMost, x));
  Value units =
      e.convert(e.convert(e.mul(x, 1 / kUnit), builder.getI32Type()), type);
  auto ranges = [&](Value terms) {
    Value prefix = e.sumLast(whereColumns(e, e.broadcast(terms, {0, 2}, wide),
                                          ComparePredicate::le));
    return e.sub(e.broadcast(prefix, {0, 1}, wide),
                 e.broadcast(prefix, {0, 2}, wide));
  };
  Value sum =
      e.add(e.mul(ranges(units), kUnit), ranges(e.sub(x, e.mul(units, kUnit))));
  sum = whereColumns(e, sum, ComparePredicate::le);
  return {convertLike(e, e.reshape(sum, shapeOf(getResult())), getResult())};
}

// Term k is in the sums of s < k <= l.
SmallVector<Value> SegmentSumOp::buildVjp(OpBuilder &builder,
                                          ValueRange cotangents) {
  if (!cotangents[0])
    return none(*this);
  Emitter e(builder, getLoc());
  Type type = statisticsType(getInput());
  const int64_t n = shapeOf(getInput()).back(),
                rows = tensorType(getInput()).getNumElements() / n;
  Value g = e.reshape(e.convert(cotangents[0], type), {rows, n, n});
  g = whereColumns(e, g, ComparePredicate::lt);
  Value isLater = e.convert(compareIndices(e, n, ComparePredicate::ge), type);
  Value later = e.einsum("kl,mls->mks", isLater, g);
  Value x = e.sumLast(whereColumns(e, later, ComparePredicate::lt));
  return {convertLike(e, e.reshape(x, shapeOf(getInput())), getInput())};
}

// Rows are shardable.
OpRule SegmentSumOp::getShardingRule() {
  OpRule rule;
  OpRule::Dims in = rule.loopsOf(getInput()), out = in;
  rule.loops[in.back()[0]].kind = LoopKind::whole;
  out.push_back({rule.loopDim(shapeOf(getInput()).back(), LoopKind::whole)});
  rule.operands = {in}, rule.results = {out};
  return rule;
}
