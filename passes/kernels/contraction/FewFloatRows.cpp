// Few rows in f32 × quantized weights: words are dequantized in registers and
// multiplied by elements of lhs, one splat after another. Integers of 8 bits
// are shifted into sign; 4 bits are masked in place, 16^i times too large,
// which lhs compensates: it is staged divided by the same factor, exactly. The
// offset that keeps them unsigned is subtracted from a group's sum at once, by
// the sum of lhs over the group, together with zero points. A sum has four
// chains for any number of rows, so that a row's bits do not depend on their
// number.
#include "dialects/tile/TileQuantOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/FewRows.h"
#include "runtime/support/Mxfp4.h"

using namespace mlir;
using namespace tessera;

// Partial sums of one group.
static constexpr int64_t kChains = 4;

namespace {
class FewFloatRows : public FewRows {
public:
  using FewRows::FewRows;

private:
  void allocateRows() override;
  void stageRows() override;
  Value addGroup(Value micropanel, Value group, const Rows &rows, int64_t size,
                 Value sum) override;
  void stageGroup(Value row, Value group, int64_t size);
  Value stageElements(Value row, Value k, int64_t count);
  void multiplyBlock(Value micropanel, Value part, const Rows &rows,
                     MutableArrayRef<Value> chains);
  Value dequantize(Value word, int64_t place);

  Value scaled;      ///< [rows, columns padded]: lhs, scaled to words
  Value negatedSums; ///< [rows, groups]: of lhs; null if none is subtracted
};
} // namespace

// The factor by which a weight of 4 bits is too large, exactly.
static float weightFactor(int64_t place) {
  return place == 7 ? 1.0f : float(1 << (4 * place));
}

void FewFloatRows::allocateRows() {
  scaled = block.allocate({plan.blockRows, layout.blocks() * kQuantBlock},
                          b.getF32Type());
  if (layout.offset() || layout.zeros)
    negatedSums =
        block.allocate({plan.blockRows, layout.groups()}, b.getF32Type());
}

void FewFloatRows::stageRows() {
  int64_t whole = layout.columns / layout.group,
          rest = layout.columns % layout.group;
  auto stage = [&](Value row) {
    forEach(whole, [&](Value group) { stageGroup(row, group, layout.group); });
    if (rest)
      stageGroup(row, index(whole), rest);
  };
  forEachRow(stage);
}

// The factors by which elements of lhs are divided, to compensate those of the
// weights.
static SmallVector<float> streamFactors(const QuantizedLayout &layout,
                                        int64_t count) {
  SmallVector<float> factors;
  for (int64_t k = 0; k < count; ++k)
    factors.push_back(layout.bits == 4 && !layout.floats
                          ? 1 / weightFactor(k % layout.perWord())
                          : 1);
  return factors;
}

static Value emitSum(OpBuilder &b, Location loc, Value x) {
  Type element = cast<VectorType>(x.getType()).getElementType();
  Value sum = b.create<tile::ReduceOp>(loc, VectorType::get({}, element), x,
                                       tile::ReduceKind::sum, 0);
  return b.create<vector::ExtractElementOp>(loc, sum);
}

// Elements [k, k + count) of a row of lhs, in f32; they are also staged.
Value FewFloatRows::stageElements(Value row, Value k, int64_t count) {
  Value x = loadElements(row, k, count);
  auto type = cast<VectorType>(x.getType());
  Value product = x;
  if (layout.bits == 4) {
    Value factors = b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(
                 type, ArrayRef<float>(streamFactors(layout, count))));
    product = b.create<arith::MulFOp>(loc, x, factors);
  }
  store(product, scaled, {row, k}, {1});
  return x;
}

// Elements of lhs over one group of `size` columns, zeros up to a block's end,
// and their sum.
void FewFloatRows::stageGroup(Value row, Value group, int64_t size) {
  Value none = zeros(VectorType::get({kQuantBlock}, b.getF32Type()));
  Value start = mul(group, layout.group), whole = none;
  if (int64_t parts = size / kQuantBlock)
    whole = forRange(index(0), index(parts), 1, none,
                     [&](Value i, ValueRange so) -> Values {
                       Value k = add(start, mul(i, kQuantBlock));
                       Value x = stageElements(row, k, kQuantBlock);
                       return {b.create<arith::AddFOp>(loc, so[0], x)};
                     })[0];
  Value sum = negatedSums ? emitSum(b, loc, whole) : Value();
  if (int64_t rest = size % kQuantBlock) {
    Value k = add(start, index(size / kQuantBlock * kQuantBlock));
    store(none, scaled, {row, k}, {1});
    Value x = stageElements(row, k, rest);
    if (sum)
      sum = b.create<arith::AddFOp>(loc, sum, emitSum(b, loc, x));
  }
  if (sum)
    b.create<memref::StoreOp>(loc, b.create<arith::NegFOp>(loc, sum),
                              negatedSums, ValueRange{row, group});
}

// `sum` plus scale × the products of the group's blocks.
Value FewFloatRows::addGroup(Value micropanel, Value group, const Rows &rows,
                             int64_t size, Value sum) {
  auto type = cast<VectorType>(sum.getType());
  SmallVector<Value> chains(kChains, zeros(type));
  if (rows.prefetches)
    prefetchScales(micropanel, group);
  Value first = mul(group, layout.group / kQuantBlock);
  int64_t parts = partsOf(size, kQuantBlock);
  if (parts == 1)
    multiplyBlock(micropanel, first, rows, chains);
  else
    chains = llvm::to_vector(forRange(
        index(0), index(parts), 1, chains, [&](Value i, ValueRange so) {
          Values inner = llvm::to_vector(so);
          multiplyBlock(micropanel, add(first, i), rows, inner);
          return inner;
        }));
  auto plus = [&](Value x, Value y) -> Value {
    return b.create<arith::AddFOp>(loc, x, y);
  };
  Value ofGroup = plus(plus(chains[0], chains[1]), plus(chains[2], chains[3]));
  if (negatedSums) {
    auto left = VectorType::get({rows.count, 1}, b.getF32Type());
    auto right = VectorType::get({1, kMicropanel}, b.getF32Type());
    Value sums = load(left, negatedSums, {rows.first, group}, {0, 1});
    Value offset = b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(right, float(layout.offset())));
    if (layout.zeros)
      offset = b.create<arith::AddFOp>(
          loc, offset,
          b.create<tile::BroadcastOp>(loc, right,
                                      weights.loadZero(micropanel, group),
                                      ArrayRef<int64_t>{1}));
    ofGroup = b.create<tile::MmaOp>(loc, sums, offset, ofGroup);
  }
  Value scale = b.create<tile::BroadcastOp>(
      loc, type, weights.loadScale(micropanel, group), ArrayRef<int64_t>{1});
  return b.create<math::FmaOp>(loc, ofGroup, scale, sum);
}

// Multiplies a block's weights by the elements of lhs, alternating between the
// chains.
void FewFloatRows::multiplyBlock(Value micropanel, Value part, const Rows &rows,
                                 MutableArrayRef<Value> chains) {
  int64_t perWord = layout.perWord(), count = kQuantBlock / perWord;
  auto left = VectorType::get({rows.count, 1}, b.getF32Type());
  for (int64_t i = 0; i < count; ++i) {
    Value word = loadWords(micropanel, add(mul(part, count), index(i)), rows);
    for (int64_t place = 0; place < perWord; ++place) {
      Value k = add(mul(part, kQuantBlock), index(i * perWord + place));
      Value x = load(left, scaled, {rows.first, k}, {0, 1});
      Value &chain = chains[place % kChains];
      chain = b.create<tile::MmaOp>(loc, x, dequantize(word, place), chain);
    }
  }
}

// The weights at `place` of the words, in f32: q for 8 bits and mxfp4, (q +
// offset) × weightFactor(place) for integers of 4.
Value FewFloatRows::dequantize(Value word, int64_t place) {
  auto type = cast<VectorType>(word.getType());
  auto number = [&](uint32_t value) -> Value {
    return b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(type, llvm::APInt(32, value)));
  };
  VectorType wide = type.clone(b.getF32Type());
  if (layout.mxfp4()) {
    if (place)
      word = b.create<arith::ShRUIOp>(loc, word, number(4 * place));
    return b.create<tile::LookupOp>(loc, wide, word, kMxfp4Numbers);
  }
  if (layout.bits == 4) {
    // The uppermost would be a sign in place.
    Value masked =
        place == 7
            ? b.create<arith::ShRUIOp>(loc, word, number(28)).getResult()
            : b.create<arith::AndIOp>(loc, word, number(15u << (4 * place)))
                  .getResult();
    return b.create<arith::SIToFPOp>(loc, wide, masked);
  }
  Value high = place == 3
                   ? word
                   : b.create<arith::ShLIOp>(loc, word, number(24 - 8 * place))
                         .getResult();
  return extendUpperBytes(b, loc, layout, high);
}

std::unique_ptr<ContractionEngine>
tessera::fewFloatRows(ContractionBlock &block, ContractionEpilogue &epilogue) {
  return std::make_unique<FewFloatRows>(block, epilogue);
}
