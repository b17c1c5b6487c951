#include "passes/kernels/gpu/GpuAttentionGrad.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernels/attention/ScoreModifier.h"
#include <cmath>

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

// exp2 of a masked score is 0 exactly.
static constexpr double kMasked = -1e30;
// Far above masked scores and below all others.
static constexpr double kLeastLogSum = -1e20;
// The kernel of delta multiplies no tiles: its warps divide rows of the head.
static constexpr int64_t kDeltaWarps[] = {1, 4};

//===--- shared by all kernels --------------------------------------------===//

std::pair<Value, Value> GpuGrad::locate(bool ofKeys, int64_t tile,
                                        bool lastFirst) {
  kernel.setWarps(ArrayRef<int64_t>{tile / 16, 1});
  if (buffers.start)
    g.start = loadStart(e.b, e.loc, buffers.start);
  if (buffers.first) {
    g.first = buffers.first;
    g.firstView = o.first->view;
  }
  if (buffers.last) {
    g.last = buffers.last;
    g.lastView = o.last->view;
  }
  return g.locate(kernel.getBlockNumber(), ofKeys ? g.keys() : g.queries(),
                  ofKeys ? g.queries() : g.keys(), tile, lastFirst);
}

Value GpuGrad::loadLse(Value head, Value query, int64_t size) {
  const View &view = o.lse.view; // [B, heads, T]
  Value at = e.add(
      e.add(e.mul(g.batch, view.strides[0]), e.mul(head, view.strides[1])),
      view.offset);
  return g.loadVector(buffers.lse, at, size, query);
}

// [batch, head, 0] of the buffer of deltas.
Value GpuGrad::deltaAt(Value head) {
  return e.mul(e.add(e.mul(g.batch, g.shape.heads), head), g.shape.tokens);
}

Value GpuGrad::loadDelta(Value head, Value query, int64_t size) {
  return g.loadVector(buffers.delta, deltaAt(head), size, query);
}

// P is rounded to bf16, or multiplied as tf32: the approximate exp2 is closer.
Value GpuGrad::weigh(Value scores, Value lse, Value query, Value key,
                     int64_t queryDim) {
  OpBuilder &b = e.b;
  scores = g.mask(scores, query, key, /*keysInRows=*/queryDim == 1, kMasked);
  if (g.start) // for a query that sees no key it is as low as a score
    lse = b.create<arith::MaximumFOp>(
        e.loc, lse,
        e.splat(kLeastLogSum, cast<VectorType>(lse.getType()).getShape()));
  ArrayRef<int64_t> tile = cast<VectorType>(scores.getType()).getShape();
  Value shift =
      b.create<arith::MulFOp>(e.loc, lse, e.splat(-M_LOG2E, {tile[queryDim]}));
  Value power = b.create<math::FmaOp>(e.loc, scores,
                                      e.splat(g.shape.scale * M_LOG2E, tile),
                                      e.spread(shift, tile, queryDim));
  return b.create<math::Exp2Op>(e.loc, power, arith::FastMathFlags::afn);
}

Value GpuGrad::cap(Value scores) {
  return ScoreModifier(e, g.shape).bound(scores);
}

Value GpuGrad::scoreGradient(Value scores, Value weights, Value change,
                             Value delta, int64_t queryDim) {
  OpBuilder &b = e.b;
  ArrayRef<int64_t> tile = cast<VectorType>(change.getType()).getShape();
  Value centred =
      b.create<arith::SubFOp>(e.loc, change, e.spread(delta, tile, queryDim));
  Value gradient = b.create<arith::MulFOp>(e.loc, weights, centred);
  Value slope = ScoreModifier(e, g.shape).slope(scores, /*areMasked=*/false);
  return slope ? b.create<arith::MulFOp>(e.loc, gradient, slope) : gradient;
}

void GpuGrad::storeScaled(Value sum, const Source &to) {
  ArrayRef<int64_t> tile = cast<VectorType>(sum.getType()).getShape();
  g.store(e.b.create<arith::MulFOp>(e.loc, sum, e.splat(g.shape.scale, tile)),
          to);
}

void GpuGrad::storeKeys(ValueRange sums, Value first, Value kvHead) {
  auto to = [&](Value buffer, const View &view) {
    return of(buffer, view, first, kvHead, g.sizes.keys);
  };
  if (buffers.dValue)
    g.store(sums.front(), to(buffers.dValue, o.dValue.view));
  if (buffers.dKey)
    storeScaled(sums.back(), to(buffers.dKey, o.dKey.view));
}

void GpuGrad::emitDelta() {
  OpBuilder &b = e.b;
  int64_t rows = g.sizes.queries;
  auto [head, first] = locate(/*ofKeys=*/false, rows, false);
  kernel.setWarps(kDeltaWarps);
  auto load = [&, head = head, first = first](Value buffer, const View &view) {
    Source from = of(buffer, view, first, head, rows);
    Type memory = cast<MemRefType>(buffer.getType()).getElementType();
    SmallVector<Value> bounds{from.rows ? from.rows : e.index(rows),
                              e.index(g.shape.headDim)};
    return e.toFloat(b.create<tile::LoadOp>(
        e.loc, VectorType::get({rows, g.sizes.dim}, memory), from.memory,
        from.indices, bounds, ArrayRef<int64_t>{from.rowDim, from.columnDim}));
  };
  Value product =
      b.create<arith::MulFOp>(e.loc, load(buffers.output, o.output.view),
                              load(buffers.cotangent, o.cotangent.view));
  g.storeVector(e.reduce(product, tile::ReduceKind::sum, 1), buffers.delta,
                deltaAt(head), first);
}

//===--- dK, dV, without warp specialization ------------------------------===//

namespace {

class StagedKeys : GpuGrad {
public:
  using GpuGrad::GpuGrad;
  void emit();

private:
  /// Step `step` of the loop: query tile step mod perHead of the group's head
  /// step div perHead.
  std::pair<Value, Value> placeOf(Value step);
  void stage(Value step);
  SmallVector<Value> queryTile(Value step, ValueRange sums);

  Staged query, cotangent, key, value;
  Value kvHead, firstKey, begin, steps, perHead;
};

} // namespace

std::pair<Value, Value> StagedKeys::placeOf(Value step) {
  OpBuilder &b = e.b;
  Value member = b.createOrFold<arith::DivUIOp>(e.loc, step, perHead);
  Value head = e.add(e.mul(kvHead, g.shape.heads / g.shape.kvHeads), member);
  Value number = b.createOrFold<arith::RemUIOp>(e.loc, step, perHead);
  return {head, e.add(begin, e.mul(number, g.sizes.queries))};
}

void StagedKeys::stage(Value step) {
  auto [head, first] = placeOf(step);
  Value place = e.rem(step, 2);
  query.copy(e, place,
             of(buffers.query, o.query.view, first, head, g.sizes.queries));
  cotangent.copy(
      e, place,
      of(buffers.cotangent, o.cotangent.view, first, head, g.sizes.queries));
}

SmallVector<Value> StagedKeys::queryTile(Value step, ValueRange sums) {
  int64_t keys = g.sizes.keys, queries = g.sizes.queries;
  g.wait();
  Value next = e.add(step, 1);
  e.ifTrue(e.compare(arith::CmpIPredicate::slt, next, steps),
           [&] { stage(next); });
  g.commit();
  auto [head, first] = placeOf(step);
  Value place = e.rem(step, 2), zero = e.index(0);
  Value scores = g.multiply(key.load(e, zero), query.loadTransposed(e, place),
                            g.zeros(keys, queries));
  scores = cap(scores);
  Value change =
      g.multiply(value.load(e, zero), cotangent.loadTransposed(e, place),
                 g.zeros(keys, queries));
  Value weights =
      weigh(scores, loadLse(head, first, queries), first, firstKey, 1);
  Value dScores = scoreGradient(scores, weights, change,
                                loadDelta(head, first, queries), 1);
  SmallVector<Value> result;
  if (buffers.dValue)
    result.push_back(g.multiply(e.toElement(weights, g.element),
                                cotangent.load(e, place), sums[result.size()]));
  if (buffers.dKey)
    result.push_back(g.multiply(e.toElement(dScores, g.element),
                                query.load(e, place), sums[result.size()]));
  return result;
}

void StagedKeys::emit() {
  int64_t keys = g.sizes.keys;
  std::tie(kvHead, firstKey) = locate(/*ofKeys=*/true, keys, false);
  key = g.stageTiles(1, keys);
  value = g.stageTiles(1, keys);
  query = g.stageTiles(2, g.sizes.queries);
  cotangent = g.stageTiles(2, g.sizes.queries);
  Value zero = e.index(0), end;
  key.copy(e, zero, of(buffers.key, o.key.view, firstKey, kvHead, keys));
  value.copy(e, zero, of(buffers.value, o.value.view, firstKey, kvHead, keys));
  std::tie(begin, end) = g.visibleQueries(firstKey);
  perHead =
      e.div(e.add(e.sub(end, begin), g.sizes.queries - 1), g.sizes.queries);
  steps = e.mul(perHead, g.shape.heads / g.shape.kvHeads);
  stage(zero);
  g.commit();
  auto sums = e.forRange(
      zero, steps, 1, noKeySums(),
      [&](Value step, ValueRange carried) { return queryTile(step, carried); });
  storeKeys(sums, firstKey, kvHead);
}

void gpu::emitStagedKeys(GpuAttention &g, tile::KernelOp kernel,
                         const BackwardOperands &o,
                         const GradBuffers &buffers) {
  StagedKeys(g, kernel, o, buffers).emit();
}

//===--- dQ, without warp specialization ----------------------------------===//

namespace {

class StagedQueries : GpuGrad {
public:
  using GpuGrad::GpuGrad;
  void emit();

private:
  void stage(Value at);
  SmallVector<Value> keyTile(Value firstKey, Value end, Value sum);

  Staged query, cotangent, key, value;
  Value head, kvHead, firstQuery;
};

} // namespace

void StagedQueries::stage(Value at) {
  int64_t keys = g.sizes.keys;
  Value place = e.rem(e.div(at, keys), 2);
  key.copy(e, place, of(buffers.key, o.key.view, at, kvHead, keys));
  value.copy(e, place, of(buffers.value, o.value.view, at, kvHead, keys));
}

SmallVector<Value> StagedQueries::keyTile(Value firstKey, Value end,
                                          Value sum) {
  int64_t keys = g.sizes.keys, queries = g.sizes.queries;
  g.wait();
  Value next = e.add(firstKey, keys);
  e.ifTrue(e.compare(arith::CmpIPredicate::slt, next, end),
           [&] { stage(next); });
  g.commit();
  Value place = e.rem(e.div(firstKey, keys), 2), zero = e.index(0);
  Value scores = g.multiply(query.load(e, zero), key.loadTransposed(e, place),
                            g.zeros(queries, keys));
  scores = cap(scores);
  Value change =
      g.multiply(cotangent.load(e, zero), value.loadTransposed(e, place),
                 g.zeros(queries, keys));
  Value weights = weigh(scores, loadLse(head, firstQuery, queries), firstQuery,
                        firstKey, 0);
  Value dScores = scoreGradient(scores, weights, change,
                                loadDelta(head, firstQuery, queries), 0);
  return {g.multiply(e.toElement(dScores, g.element), key.load(e, place), sum)};
}

void StagedQueries::emit() {
  int64_t queries = g.sizes.queries, keys = g.sizes.keys;
  std::tie(head, firstQuery) = locate(/*ofKeys=*/false, queries, true);
  kvHead = g.kvHeadOf(head);
  query = g.stageTiles(1, queries);
  cotangent = g.stageTiles(1, queries);
  key = g.stageTiles(2, keys);
  value = g.stageTiles(2, keys);
  Value zero = e.index(0);
  query.copy(e, zero,
             of(buffers.query, o.query.view, firstQuery, head, queries));
  cotangent.copy(
      e, zero,
      of(buffers.cotangent, o.cotangent.view, firstQuery, head, queries));
  auto [begin, end] = g.visibleKeys(firstQuery);
  stage(begin);
  g.commit();
  auto sums = e.forRange(begin, end, keys, g.zeros(queries, g.sizes.dim),
                         [&, end = end](Value at, ValueRange sum) {
                           return keyTile(at, end, sum[0]);
                         });
  storeScaled(sums[0],
              of(buffers.dQuery, o.dQuery.view, firstQuery, head, queries));
}

void gpu::emitStagedQueries(GpuAttention &g, tile::KernelOp kernel,
                            const BackwardOperands &o,
                            const GradBuffers &buffers) {
  StagedQueries(g, kernel, o, buffers).emit();
}
