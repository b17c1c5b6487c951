#include "passes/kernels/attention/AttentionMatrices.h"

using namespace mlir;
using namespace tessera;

// Rows and columns of a register, and of a product; terms that are added at
// once.
static constexpr int64_t kUnit = 16, kTile = 32, kTerms = 32;
// Padding between staged rows, a cache line, so that they do not map to one
// cache set.
static constexpr int64_t kRowPadding = 32;

bool AttentionMatrices::fit(int64_t headDim, int64_t keyTile, Type query,
                            Type key) {
  return query.isBF16() && (key.isBF16() || key.isInteger(8)) &&
         headDim % kTerms == 0 && keyTile % kTerms == 0;
}

AttentionMatrices::AttentionMatrices(AttentionEmitter &e, bool scaled) : e(e) {
  int64_t tile = e.shape.queryTile, dim = e.shape.headDim,
          count = e.shape.keyTile;
  queries = e.matrix(alloc({dim, tile}, tile::Layout::pairs));
  values = e.matrix(alloc({count, dim}, tile::Layout::pairs));
  transposed = e.matrix(alloc({tile, count + kRowPadding}, tile::Layout::rows));
  if (!scaled)
    return;
  keys = e.matrix(alloc({count, dim + kRowPadding}, tile::Layout::rows));
  keyScales = e.matrix(e.alloc({count, 1}));
  valueScales = e.matrix(e.alloc({count, 1}));
}

Value AttentionMatrices::alloc(ArrayRef<int64_t> sizes, tile::Layout layout) {
  auto space = tile::SharedAttr::get(e.b.getContext(), layout);
  auto type = MemRefType::get(sizes, e.b.getBF16Type(),
                              MemRefLayoutAttrInterface(), space);
  return e.b.create<tile::AllocOp>(e.loc, type);
}

void AttentionMatrices::clear(const Matrix &pairs, int64_t rows, int64_t cols) {
  auto type = VectorType::get({2, cols}, e.b.getBF16Type());
  Value zeros = e.b.create<arith::ConstantOp>(e.loc, e.b.getZeroAttr(type));
  e.forRange(e.index(0), e.index(rows), 2, [&](Value row) {
    e.b.create<tile::StoreOp>(e.loc, zeros, pairs.memory,
                              ValueRange{row, e.index(0)}, ValueRange(),
                              ArrayRef<int64_t>{0, 1});
  });
}

// Rows [row, row + rows) of `from`, head_dim long, along `rowDim` of `to`.
void AttentionMatrices::copyToPairs(const Matrix &from, Value row, int64_t rows,
                                    const Matrix &to, unsigned rowDim) {
  SmallVector<Value> source(from.origin), target(2, e.index(0));
  source[from.rowDim] = e.add(source[from.rowDim], row);
  target[rowDim] = row;
  e.b.create<tile::CopyOp>(e.loc, from.memory, source, to.memory, target,
                           ValueRange(),
                           ArrayRef<int64_t>{rows, e.shape.headDim},
                           ArrayRef<int64_t>{from.rowDim, from.colDim},
                           ArrayRef<int64_t>{rowDim, 1 - rowDim});
}

void AttentionMatrices::takeQueries(const Matrix &query, Value count) {
  if (e.shape.tokens % e.shape.queryTile)
    clear(queries, e.shape.headDim, e.shape.queryTile);
  e.forRows(count, kUnit, e.shape.tokens, [&](Value row, int64_t rows) {
    copyToPairs(query, row, rows, queries, /*rowDim=*/1);
  });
}

// A weight of a missing key is zero, and must not be multiplied by NaN or
// infinity.
void AttentionMatrices::clearValues() {
  clear(values, e.shape.keyTile, e.shape.headDim);
  if (valueScales)
    e.fillZero(*valueScales, e.index(e.shape.keyTile), 1);
}

void AttentionMatrices::takeValues(const Matrix &value, Value rows) {
  Value odd = e.b.create<arith::RemUIOp>(e.loc, rows, e.index(2));
  Value even = e.sub(rows, odd);
  e.forRange(e.index(0), even, 2, [&](Value row) {
    copyToPairs(value, row, 2, values, /*rowDim=*/0);
  });
  Value isOdd = e.b.create<arith::CmpIOp>(e.loc, arith::CmpIPredicate::ne, odd,
                                          e.index(0));
  e.ifTrue(isOdd, [&] { copyToPairs(value, even, 1, values, /*rowDim=*/0); });
}

Matrix AttentionMatrices::takeIntegers(const Matrix &key, const Matrix &value,
                                       Value rows, const Matrix &ofKeys,
                                       const Matrix &ofValues) {
  e.copyRows(key, *keys, rows, e.shape.headDim);
  e.copyRows(ofKeys, *keyScales, rows, 1);
  // An odd row is followed by an undefined integer with an undefined scale.
  e.forRange(e.index(0), rows, 2, [&](Value row) {
    e.forColumns(e.shape.headDim, 4 * e.target.lanes,
                 [&](Value col, int64_t width) {
                   e.store(e.load(value, row, col, 2, width), values, row, col);
                 });
  });
  e.copyRows(ofValues, *valueScales, rows, 1);
  return *keys;
}

void AttentionMatrices::multiply(const Matrix &a, const Matrix &b,
                                 const Matrix &c, int64_t rows, int64_t cols,
                                 int64_t depth, bool accumulate) {
  Value keep =
      e.b.create<arith::ConstantOp>(e.loc, e.b.getBoolAttr(accumulate));
  int64_t height = std::min(rows, kTile), width = std::min(cols, kTile);
  auto at = [&](const Matrix &m, Value row, Value col) {
    SmallVector<Value> indices(m.origin);
    indices[m.rowDim] = e.add(indices[m.rowDim], row);
    indices[m.colDim] = e.add(indices[m.colDim], col);
    return indices;
  };
  Value zero = e.index(0);
  e.forRange(zero, e.index(rows), height, [&](Value row) {
    e.forRange(zero, e.index(cols), width, [&](Value col) {
      e.b.create<tile::MmaStagedOp>(
          e.loc, a.memory, at(a, row, zero), b.memory, at(b, zero, col),
          c.memory, at(c, row, col), keep, e.index(depth),
          ArrayRef<int64_t>{height, width}, /*far=*/false);
    });
  });
}

void AttentionMatrices::multiplyKeys(const Matrix &key, const Matrix &scores) {
  int64_t tile = e.shape.queryTile;
  multiply(key, queries, scores, e.shape.keyTile, tile, e.shape.headDim,
           /*accumulate=*/false);
  if (!keyScales)
    return;
  Value zero = e.index(0);
  e.forRange(zero, e.index(e.shape.keyTile), 1, [&](Value row) {
    Value scale = e.spread(e.loadNumber(*keyScales, row), {tile});
    Value scaled = e.b.create<arith::MulFOp>(
        e.loc, e.loadRow(scores, row, zero, tile), scale);
    e.storeRow(scaled, scores, row, zero);
  });
}

Value AttentionMatrices::scaleWeights(Value block, Value key) {
  auto type = VectorType::get({kUnit}, e.b.getF32Type());
  Value scales = e.b.create<tile::LoadOp>(e.loc, type, valueScales->memory,
                                          ValueRange{key, e.index(0)},
                                          ValueRange(), ArrayRef<int64_t>{0});
  Value spread = e.b.create<tile::BroadcastOp>(e.loc, block.getType(), scales,
                                               ArrayRef<int64_t>{0});
  return e.b.create<arith::MulFOp>(e.loc, block, spread);
}

void AttentionMatrices::roundWeights(const Matrix &weights) {
  auto blockType = VectorType::get({kUnit, kUnit}, e.b.getF32Type());
  e.forRange(e.index(0), e.index(e.shape.keyTile), kUnit, [&](Value key) {
    e.forRange(e.index(0), e.index(e.shape.queryTile), kUnit, [&](Value query) {
      Value block = e.load(weights, key, query, kUnit, kUnit);
      if (valueScales)
        block = scaleWeights(block, key);
      block = e.b.create<tile::TransposeOp>(e.loc, blockType, block);
      e.store(block, transposed, query, key);
    });
  });
}

void AttentionMatrices::addValues(const Matrix &weights, const Matrix &output) {
  roundWeights(weights);
  multiply(transposed, values, output, e.shape.queryTile, e.shape.headDim,
           e.shape.keyTile, /*accumulate=*/true);
}
