#include "passes/kernels/attention/RunningSoftmax.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <cmath>

using namespace mlir;
using namespace tessera;

RunningSoftmax::RunningSoftmax(AttentionEmitter &e, Products products) : e(e) {
  int64_t tile = e.shape.queryTile, dim = e.shape.headDim;
  if (products == Products::matrices || products == Products::scaledMatrices)
    matrices.emplace(e, products == Products::scaledMatrices);
  else
    queryT = e.matrix(e.alloc({dim, tile}));
  // Register tiles that begin earlier so as not to read past the last key write
  // rows before the first one's.
  bool mayBeginEarlier = products == Products::direct && e.shape.hasFirst;
  int64_t before = mayBeginEarlier ? e.microRows() : 0;
  scores = e.matrix(e.alloc({before + e.shape.keyTile, tile}));
  scores.origin[0] = e.index(before);
  output = e.matrix(e.alloc({tile, dim}));
  maximum = e.alloc({tile});
  sum = e.alloc({tile});
  rescale = e.alloc({tile});
  if (products == Products::staged) {
    keyStage = e.matrix(e.alloc({e.shape.keyTile, dim}));
    valueStage = e.matrix(e.alloc({e.shape.keyTile, dim}));
  }
  if (e.shape.hasFirst)
    queryStage = e.matrix(e.alloc({tile, dim}));
}

void RunningSoftmax::start(const Matrix &query, Value queries, Value sinks) {
  Value zero = e.index(0);
  int64_t tile = e.shape.queryTile;
  this->queries = queries;
  Value rows = e.computedQueries(queries);
  if (matrices) {
    matrices->takeQueries(query, queries);
  } else if (queryStage.memory) {
    e.copyRows(query, queryStage, queries, e.shape.headDim);
    e.copyTransposed(queryStage, queryT, rows, tile, e.shape.headDim);
  } else {
    // Columns past the last query compute on zeros and are never stored.
    if (e.shape.tokens % tile)
      e.fillZero(queryT, e.index(e.shape.headDim), tile);
    e.copyTransposed(query, queryT, queries, e.shape.tokens, e.shape.headDim);
  }
  // A sink is a score that comes first, of a value of zero.
  Value least = e.splat(kLeastMaximum, {tile});
  if (sinks)
    least = e.b.create<arith::MulFOp>(e.loc, sinks,
                                      e.splat(1 / e.shape.scale, {tile}));
  e.storeVector(least, maximum, zero);
  e.storeVector(e.splat(sinks ? 1.0 : 0.0, {tile}), sum, zero);
  e.fillZero(output, rows, e.shape.headDim);
}

std::pair<Matrix, Matrix> RunningSoftmax::stage(const Matrix &key,
                                                const Matrix &value, Value rows,
                                                const Matrix *keyScales,
                                                const Matrix *valueScales) {
  if (matrices && keyScales)
    return {matrices->takeIntegers(key, value, rows, *keyScales, *valueScales),
            value};
  if (matrices)
    matrices->takeValues(value, rows);
  if (!keyStage.memory)
    return {key, value};
  e.copyRows(key, keyStage, rows, e.shape.headDim, keyScales);
  e.copyRows(value, valueStage, rows, e.shape.headDim, valueScales);
  return {keyStage, valueStage};
}

void RunningSoftmax::clearStage() {
  if (matrices)
    return matrices->clearValues();
  if (keyStage.memory) {
    Value rows = e.index(e.shape.keyTile);
    e.fillZero(keyStage, rows, e.shape.headDim);
    e.fillZero(valueStage, rows, e.shape.headDim);
  }
  if (queryStage.memory)
    e.fillZero(queryStage, e.index(e.shape.queryTile), e.shape.headDim);
}

void RunningSoftmax::add(const Matrix &key, const Matrix &value, Value keys,
                         int64_t total,
                         llvm::function_ref<void(const Matrix &)> mask,
                         Value lastRow) {
  if (matrices)
    matrices->multiplyKeys(key, scores);
  else
    e.multiply(key, queryT, scores, e.shape.hasFirst ? e.wholeRows(keys) : keys,
               total, e.queryColumns(queries), e.index(e.shape.headDim), false,
               lastRow);
  e.capScores(scores, keys, queries);
  mask(scores);
  e.forQueries(queries,
               [&](Value col, int64_t width) { softmax(keys, col, width); });
  rescaleOutput();
  if (matrices)
    return matrices->addValues(scores, output);
  e.multiply(scores.transposed(), value, output, e.computedQueries(queries), 0,
             e.shape.headDim, keys, true);
}

// Accumulates over the keys with `next`, one vector row of scores after
// another.
Value RunningSoftmax::overKeys(Value keys, Value start,
                               llvm::function_ref<Value(Value, Value)> next) {
  OpBuilder &b = e.b;
  auto loop = b.create<scf::ForOp>(e.loc, e.index(0), keys, e.index(1), start);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(loop.getBody());
  b.create<scf::YieldOp>(
      e.loc, next(loop.getInductionVar(), loop.getRegionIterArg(0)));
  return loop.getResult(0);
}

// scores ← exp2(c (scores − max)) with c = scale · log2 e; max, sum updated: of
// `width` queries from column `col` on.
void RunningSoftmax::softmax(Value keys, Value col, int64_t width) {
  OpBuilder &b = e.b;
  Value before = e.loadVector(maximum, col, width);
  Value after = overKeys(keys, before, [&](Value row, Value largest) -> Value {
    return b.create<arith::MaximumFOp>(e.loc, largest,
                                       e.loadRow(scores, row, col, width));
  });
  Value factor = e.splat(e.shape.scale * M_LOG2E, {width});
  Value shift = b.create<arith::MulFOp>(e.loc, after, factor);
  Value drop = b.create<arith::SubFOp>(
      e.loc, b.create<arith::MulFOp>(e.loc, before, factor), shift);
  Value alpha = b.create<math::Exp2Op>(e.loc, drop);
  Value scaled =
      b.create<arith::MulFOp>(e.loc, e.loadVector(sum, col, width), alpha);
  Value negative = b.create<arith::NegFOp>(e.loc, shift);
  Value total = overKeys(keys, scaled, [&](Value row, Value sumSoFar) -> Value {
    Value score = e.loadRow(scores, row, col, width);
    Value power = b.create<math::FmaOp>(e.loc, score, factor, negative);
    Value weight = b.create<math::Exp2Op>(e.loc, power);
    e.storeRow(weight, scores, row, col);
    return b.create<arith::AddFOp>(e.loc, sumSoFar, weight);
  });
  e.storeVector(after, maximum, col);
  e.storeVector(total, sum, col);
  e.storeVector(alpha, rescale, col);
}

// Each row of the output times a scalar of `factors`.
void RunningSoftmax::rescaleOutput() {
  Value rows = e.shape.hasFirst ? queries : e.index(e.shape.queryTile);
  e.forRange(e.index(0), rows, 1, [&](Value row) {
    Value alpha = e.b.create<memref::LoadOp>(e.loc, rescale, row);
    e.forColumns(
        e.shape.headDim, 4 * e.target.lanes, [&](Value col, int64_t width) {
          Value run = e.loadRow(output, row, col, width);
          Value scaled =
              e.b.create<arith::MulFOp>(e.loc, run, e.spread(alpha, {width}));
          e.storeRow(scaled, output, row, col);
        });
  });
}

void RunningSoftmax::finish(const Matrix &result) {
  e.forQueries(queries, [&](Value col, int64_t width) {
    Value total = e.loadVector(sum, col, width);
    // A query that has seen no key has a sum of 0 and an output of 0.
    Value least = e.splat(std::numeric_limits<float>::min(), {width});
    total = e.b.create<arith::MaximumFOp>(e.loc, total, least);
    Value inverse =
        e.b.create<arith::DivFOp>(e.loc, e.splat(1.0, {width}), total);
    e.storeVector(inverse, rescale, col);
  });
  rescaleOutput();
  e.copyRows(output, result, queries, e.shape.headDim);
}

void RunningSoftmax::storeLogSumExp(Value memory, Value at) {
  e.forQueries(queries, [&](Value col, int64_t width) {
    Value top =
        e.b.create<arith::MulFOp>(e.loc, e.loadVector(maximum, col, width),
                                  e.splat(e.shape.scale, {width}));
    Value total = e.loadVector(sum, col, width);
    Value logarithm = e.b.create<math::LogOp>(e.loc, total);
    e.storeVector(e.b.create<arith::AddFOp>(e.loc, top, logarithm), memory,
                  e.add(at, col), e.remainingQueries(queries, col, width));
  });
}
