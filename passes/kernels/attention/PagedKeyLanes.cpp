// Decode with fewer queries that share keys than a vector has lanes: keys are
// in lanes. A page's keys are transposed, for scores [query × key]; its values
// are read in place, as many as the sequence has. All sums have the order of
// RunningSoftmax, so that a token has the same bits if its text is read again
// as a prompt.
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/attention/PagedBlock.h"
#include "llvm/ADT/bit.h"
#include <cmath>

using namespace mlir;
using namespace tessera;

// Columns of scores in one vector of the softmax.
static constexpr int64_t kVector = 16;
// Accumulators that hide the latency of FMA and leave registers for operands.
static constexpr int64_t kAccumulators = 8;

static constexpr int64_t kLine = 64; // bytes of the cache's

namespace {
class KeyLanes : public PagedBlock {
public:
  KeyLanes(AttentionEmitter &e, tile::KernelOp kernel,
           const PagedOperands &operands, const PagedShape &shape);

private:
  void start(const Matrix &query, Value sinks) override;
  void add(const KeyPage &page) override;
  void finish(const Matrix &result) override;

  /// Columns of products of all queries, at most `most`.
  int64_t productWidth(int64_t most) const;
  void prefetchRow(const Matrix &m, Value row);
  void transposeKeys(const KeyPage &page, Value keys);
  void multiplyKeys(Value keys);
  void
  overScores(Value keys,
             llvm::function_ref<Value(Value score, Value row, Value col)> next);
  void mask(const KeyPage &page, Value keys);
  void takeMaxima(Value keys);
  void takeWeights(const KeyPage &page, Value keys);
  void addValues(const KeyPage &page);
  Value loadNumbers(Value memory) {
    return e.loadVector(memory, e.index(0), group);
  }
  void storeNumbers(Value numbers, Value memory) {
    e.storeVector(numbers, memory, e.index(0));
  }
  /// [group × width] of [group].
  Value spreadRows(Value numbers, int64_t width) {
    return b.create<tile::BroadcastOp>(
        e.loc, VectorType::get({group, width}, b.getF32Type()), numbers,
        ArrayRef<int64_t>{0});
  }

  const int64_t group, dim;
  Matrix query, keysT, scores, output;
  Value maximum, sum, shift, alpha; ///< shared, [group]
};
} // namespace

KeyLanes::KeyLanes(AttentionEmitter &e, tile::KernelOp kernel,
                   const PagedOperands &operands, const PagedShape &shape)
    : PagedBlock(e, kernel, operands, shape), group(e.shape.queryTile),
      dim(e.shape.headDim), query(e.matrix(e.alloc({group, dim}))),
      keysT(e.matrix(e.alloc({dim, e.shape.keyTile}))),
      scores(e.matrix(e.alloc({group, e.shape.keyTile}))),
      output(e.matrix(e.alloc({group, dim}))) {
  for (Value *numbers : {&maximum, &sum, &shift, &alpha})
    *numbers = e.alloc({group});
}

void KeyLanes::start(const Matrix &from, Value sinks) {
  e.copyRows(from, query, e.index(group), dim);
  // A sink is a score that comes first, of a value of zero.
  Value least = e.splat(kLeastMaximum, {group});
  if (sinks)
    least = b.create<arith::MulFOp>(e.loc, sinks,
                                    e.splat(1 / e.shape.scale, {group}));
  storeNumbers(least, maximum);
  storeNumbers(e.splat(sinks ? 1.0 : 0.0, {group}), sum);
  e.fillZero(output, e.index(group), dim);
}

int64_t KeyLanes::productWidth(int64_t most) const {
  int64_t width =
      e.target.lanes *
      llvm::bit_floor(uint64_t(std::max<int64_t>(kAccumulators / group, 1)));
  while (width > e.target.lanes && most % width)
    width /= 2;
  return width;
}

void KeyLanes::add(const KeyPage &page) {
  Value keys = e.roundUp(page.count, productWidth(e.shape.keyTile));
  transposeKeys(page, keys);
  multiplyKeys(keys);
  if (e.shape.cap != 0)
    overScores(keys, [&](Value score, Value, Value) {
      return ScoreModifier(e, shape).bound(score);
    });
  e.ifTrue(isCrossed(page), [&] { mask(page, keys); });
  takeMaxima(keys);
  takeWeights(page, keys);
  addValues(page);
}

// Rows of one head are not contiguous, and no hardware prefetches them: while
// keys are multiplied, their values are, then the next keys.
void KeyLanes::prefetchRow(const Matrix &m, Value row) {
  const unsigned bits =
      cast<MemRefType>(m.memory.getType()).getElementTypeBitWidth();
  for (int64_t col = 0; col < dim; col += 8 * kLine / bits)
    b.create<memref::PrefetchOp>(e.loc, m.memory, e.at(m, row, e.index(col)),
                                 /*isWrite=*/false, /*localityHint=*/2,
                                 /*isDataCache=*/true);
}

// Rows after the last key are read, too: they are in the page.
void KeyLanes::transposeKeys(const KeyPage &page, Value keys) {
  const int64_t side = e.target.lanes;
  e.forRange(e.index(0), keys, side, [&](Value row) {
    Value scale;
    if (page.keyScales)
      scale = e.loadRow(page.keyScales->transposed(), e.index(0), row, side);
    for (int64_t i = 0; i < side; ++i)
      prefetchRow(page.values, e.add(row, i));
    e.forColumns(dim, side, [&](Value col, int64_t width) {
      auto type = VectorType::get({width, side}, b.getF32Type());
      Value tile = b.create<tile::TransposeOp>(
          e.loc, type, e.load(page.keys, row, col, side, width));
      if (scale)
        tile = b.create<arith::MulFOp>(
            e.loc, tile,
            b.create<tile::BroadcastOp>(e.loc, type, scale,
                                        ArrayRef<int64_t>{1}));
      e.store(tile, keysT, col, row);
    });
  });
}

void KeyLanes::multiplyKeys(Value keys) {
  const int64_t width = productWidth(e.shape.keyTile);
  e.forRange(e.index(0), keys, width, [&](Value col) {
    Value product = e.forRange(
        e.index(0), e.index(dim), 1, e.splat(0, {group, width}),
        [&](Value k, ValueRange so) -> KernelOps::Values {
          Value x = e.load(query, e.index(0), k, group, 1),
                y = e.load(keysT, k, col, 1, width);
          return {b.create<tile::MmaOp>(e.loc, so[0].getType(), x, y, so[0])};
        })[0];
    e.store(product, scores, e.index(0), col);
  });
}

void KeyLanes::overScores(Value keys,
                          llvm::function_ref<Value(Value, Value, Value)> next) {
  e.forRange(e.index(0), e.index(group), 1, [&](Value row) {
    e.forRange(e.index(0), keys, kVector, [&](Value col) {
      Value score = e.loadRow(scores, row, col, kVector);
      e.storeRow(next(score, row, col), scores, row, col);
    });
  });
}

// Of keys that the queries, which have one position, do not see.
void KeyLanes::mask(const KeyPage &page, Value keys) {
  auto type = VectorType::get({kVector}, b.getI32Type());
  auto spread = [&](Value x) {
    return e.spread(b.create<arith::IndexCastOp>(e.loc, b.getI32Type(), x),
                    {kVector});
  };
  const ScoreModifier modifier(e, shape);
  overScores(keys, [&](Value score, Value, Value col) -> Value {
    Value key = b.create<tile::IotaOp>(e.loc, type, e.add(page.first, col), 0);
    Value positions = spread(position);
    Value visible =
        modifier.both(modifier.isVisible(key, positions, positions),
                      e.compare(arith::CmpIPredicate::slt, key,
                                spread(e.add(page.first, page.count))));
    return b.create<arith::SelectOp>(e.loc, visible, score,
                                     e.splat(kMaskedScore, {kVector}));
  });
}

// Of the page, and what changes by them. `shift` is that of exp2.
void KeyLanes::takeMaxima(Value keys) {
  e.forRange(e.index(0), e.index(group), 1, [&](Value row) {
    Value largest =
        e.forRange(e.index(0), keys, kVector, e.splat(kMaskedScore, {kVector}),
                   [&](Value col, ValueRange so) -> KernelOps::Values {
                     return {b.create<arith::MaximumFOp>(
                         e.loc, so[0], e.loadRow(scores, row, col, kVector))};
                   })[0];
    Value one =
        b.create<tile::ReduceOp>(e.loc, VectorType::get({}, b.getF32Type()),
                                 largest, tile::ReduceKind::max, 0);
    b.create<memref::StoreOp>(
        e.loc, b.create<vector::ExtractElementOp>(e.loc, one), shift, row);
  });
  Value factor = e.splat(e.shape.scale * M_LOG2E, {group});
  Value before = loadNumbers(maximum);
  Value after = b.create<arith::MaximumFOp>(e.loc, before, loadNumbers(shift));
  Value scaled = b.create<arith::MulFOp>(e.loc, after, factor);
  Value drop = b.create<arith::SubFOp>(
      e.loc, b.create<arith::MulFOp>(e.loc, before, factor), scaled);
  Value change = b.create<math::Exp2Op>(e.loc, drop);
  storeNumbers(after, maximum);
  storeNumbers(b.create<arith::NegFOp>(e.loc, scaled), shift);
  storeNumbers(change, alpha);
  storeNumbers(b.create<arith::MulFOp>(e.loc, loadNumbers(sum), change), sum);
}

// Scores become exp2(c (scores − max)), and are added up one after another.
void KeyLanes::takeWeights(const KeyPage &page, Value keys) {
  Value factor = e.splat(e.shape.scale * M_LOG2E, {kVector});
  overScores(keys, [&](Value score, Value row, Value) -> Value {
    Value down =
        e.spread(b.create<memref::LoadOp>(e.loc, shift, row), {kVector});
    return b.create<math::Exp2Op>(
        e.loc, b.create<math::FmaOp>(e.loc, score, factor, down));
  });
  KernelOps::Values sums;
  for (int64_t row = 0; row < group; ++row)
    sums.push_back(b.create<memref::LoadOp>(e.loc, sum, e.index(row)));
  ValueRange added = e.forRange(
      e.index(0), page.count, 1, sums, [&](Value key, ValueRange so) {
        KernelOps::Values next;
        for (auto [row, value] : llvm::enumerate(so))
          next.push_back(b.create<arith::AddFOp>(
              e.loc, value,
              b.create<memref::LoadOp>(
                  e.loc, scores.memory,
                  ValueRange{e.index(int64_t(row)), key})));
        return next;
      });
  for (auto [row, value] : llvm::enumerate(added))
    b.create<memref::StoreOp>(e.loc, value, sum, e.index(int64_t(row)));
}

void KeyLanes::addValues(const KeyPage &page) {
  bool isFirst = true;
  e.forColumns(dim, productWidth(dim), [&](Value col, int64_t width) {
    Value before = b.create<arith::MulFOp>(
        e.loc, e.load(output, e.index(0), col, group, width),
        spreadRows(loadNumbers(alpha), width));
    Value after = e.forRange(
        e.index(0), page.count, 1, before,
        [&](Value key, ValueRange so) -> KernelOps::Values {
          if (isFirst)
            prefetchRow(page.nextKeys, key);
          Value x = e.load(scores, e.index(0), key, group, 1),
                y = e.load(page.values, key, col, 1, width);
          if (page.valueScales)
            y = b.create<arith::MulFOp>(
                e.loc, y,
                e.spread(e.loadNumber(*page.valueScales, key), {1, width}));
          return {b.create<tile::MmaOp>(e.loc, so[0].getType(), x, y, so[0])};
        })[0];
    e.store(after, output, e.index(0), col);
    isFirst = false;
  });
}

void KeyLanes::finish(const Matrix &result) {
  // A query that has seen no key has a sum of 0 and an output of 0.
  Value total = b.create<arith::MaximumFOp>(
      e.loc, loadNumbers(sum),
      e.splat(std::numeric_limits<float>::min(), {group}));
  storeNumbers(b.create<arith::DivFOp>(e.loc, e.splat(1.0, {group}), total),
               alpha);
  e.forColumns(dim, productWidth(dim), [&](Value col, int64_t width) {
    Value scaled = b.create<arith::MulFOp>(
        e.loc, e.load(output, e.index(0), col, group, width),
        spreadRows(loadNumbers(alpha), width));
    e.store(scaled, result, e.index(0), col);
  });
}

bool tessera::canPutKeysInLanes(const PagedShape &shape) {
  return shape.isDecode() && shape.rows() < kQueriesInLanes &&
         shape.page % kVector == 0;
}

std::unique_ptr<PagedBlock>
tessera::pagedKeyLanes(AttentionEmitter &e, tile::KernelOp kernel,
                       const PagedOperands &operands, const PagedShape &shape) {
  return std::make_unique<KeyLanes>(e, kernel, operands, shape);
}
