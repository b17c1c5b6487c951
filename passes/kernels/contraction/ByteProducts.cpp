#include "passes/kernels/contraction/ByteProducts.h"
#include "dialects/tile/TileQuantOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernels/ClusterLaunch.h"
#include "runtime/support/SuperBlocks.h"

using namespace mlir;
using namespace tessera;

ByteProducts::ByteProducts(const QuantWeights &weights)
    : ContractionPart(weights.block),
      pairs(!target.byteDot && weights.layout.bits != 8),
      layout(weights.layout), superBlocks(weights), packed(integerRows(plan)) {
  memory = emitView(b, loc, block.kernel.getBuffers()[0], packed.view());
  assert(!layout.superBlocks || !layout.offset() ||
         wordsAtOnce() == wordsOfPart()); // one start for each part
}

// In 16 bits 15 × 127 × 2 × 8 = 30480 and 31 × 127 × 2 × 4 = 31496 fit. q6_K
// starts with its offset times the rows, so that each term adds at most 32 ×
// 127 in magnitude, before and after it is multiplied: 32 × 127 × 2 × 4 =
// 32512.
int64_t ByteProducts::wordsAtOnce() const {
  if (!pairs)
    return layout.superBlocks ? wordsOfPart() : layout.group / 4;
  return layout.bits == 4 ? 8 : 4;
}

Value ByteProducts::number(Type type, uint32_t value) const {
  return b.create<arith::ConstantOp>(
      loc,
      DenseElementsAttr::get(cast<VectorType>(type), llvm::APInt(32, value)));
}

//===--- weights ----------------------------------------------------------===//

// Words of a part are those of its even columns, then of the odd ones, as the
// rows have them; with 8 bits those of four columns.
static std::pair<int64_t, int64_t> firstOf(const QuantizedLayout &layout,
                                           int64_t at) {
  const int64_t ofPart = IntegerRows::bytePart(layout) / 8,
                i = at / (2 * ofPart) * ofPart + at % ofPart;
  return {i, at / ofPart % 2};
}

SmallVector<int64_t> ByteProducts::wordsOf(int64_t at) const {
  if (layout.bits == 8)
    return {at};
  auto [i, odd] = firstOf(layout, at);
  return superBlocks.wordsOf(i, odd);
}

Value ByteProducts::unpack(ArrayRef<Value> words, int64_t at) const {
  if (layout.bits == 8)
    return b.create<arith::XOrIOp>(loc, words[at],
                                   number(words[at].getType(), 0x80808080));
  auto [i, odd] = firstOf(layout, at);
  return superBlocks.bytesOf(words, i, odd);
}

// As two integers of 16 bits, or as one of 32. Those without minima are signed.
Value ByteProducts::scaleOf(Value word, int64_t at) const {
  Type type = word.getType();
  Value top = number(type, 24),
        scale = b.create<arith::ShLIOp>(loc, word,
                                        number(type, uint32_t(24 - 8 * at)));
  if (layout.minima())
    scale = b.create<arith::ShRUIOp>(loc, scale, top);
  else
    scale = b.create<arith::ShRSIOp>(loc, scale, top);
  if (!pairs)
    return scale;
  Value low = b.create<arith::AndIOp>(loc, scale, number(type, 0xffff));
  return b.create<arith::OrIOp>(
      loc, low, b.create<arith::ShLIOp>(loc, scale, number(type, 16)));
}

Value ByteProducts::minimaOf(Value word, int64_t half) const {
  Type type = word.getType();
  if (half)
    word = b.create<arith::ShRUIOp>(loc, word, number(type, 8));
  return b.create<arith::AndIOp>(loc, word, number(type, 0x00ff00ff));
}

//===--- products ---------------------------------------------------------===//

Value ByteProducts::spread(const Rows &rows, Value at) const {
  Value x = load(VectorType::get({rows.count}, b.getI32Type()), memory,
                 {rows.first, at}, {0});
  return b.create<tile::BroadcastOp>(loc, tileOf(rows, b.getI32Type()), x,
                                     ArrayRef<int64_t>{0});
}

Value ByteProducts::spreadColumns(Value x, const Rows &rows) const {
  return b.create<tile::BroadcastOp>(
      loc, tileOf(rows, getElementTypeOrSelf(x.getType())), x,
      ArrayRef<int64_t>{1});
}

Value ByteProducts::one() const {
  return number(VectorType::get({kMicropanel}, b.getI32Type()), 0x00010001);
}

Value ByteProducts::startPart(const Rows &rows, Value part) const {
  VectorType type = tileOf(rows, b.getI32Type());
  if (!layout.offset())
    return zeros(type);
  Value sums = spread(rows, add(index(packed.sums()), part));
  if (pairs)
    return sums;
  return b.create<tile::DotPairsOp>(loc, type, sums, number(type, 0x00010001),
                                    zeros(type));
}

Value ByteProducts::startGroup(const Rows &rows, Value group,
                               Value offsets) const {
  Value sums = spread(rows, add(index(packed.sums()), group));
  if (!offsets)
    return sums;
  return b.create<arith::MulIOp>(loc, sums, spreadColumns(offsets, rows));
}

Value ByteProducts::addWord(const Rows &rows, Value at, Value q,
                            Value sum) const {
  Value x = load(VectorType::get({rows.count, 1}, b.getI32Type()), memory,
                 {rows.first, at}, {0, 1});
  return b.create<tile::MmaOp>(loc, x, q, sum, pairs);
}

Value ByteProducts::addPart(const Rows &rows, Value products, Value scale,
                            Value sum) const {
  scale = spreadColumns(scale, rows);
  if (pairs)
    return b.create<tile::DotPairsOp>(loc, sum.getType(), products, scale, sum);
  return b.create<arith::AddIOp>(loc, sum,
                                 b.create<arith::MulIOp>(loc, products, scale));
}

Value ByteProducts::addMinima(const Rows &rows, Value number,
                              ArrayRef<Value> minima, Value sum) const {
  for (auto [half, each] : llvm::enumerate(minima)) {
    Value at = add(mul(number, 2), index(packed.sums() + int64_t(half)));
    sum = b.create<tile::DotPairsOp>(loc, sum.getType(), spread(rows, at),
                                     spreadColumns(each, rows), sum);
  }
  return sum;
}

Value ByteProducts::addGroup(const Rows &rows, Value group, const Sums &of,
                             Value sum) const {
  VectorType type = tileOf(rows, b.getF32Type());
  Value products = b.create<arith::MulFOp>(
      loc, b.create<arith::SIToFPOp>(loc, type, of.products),
      spreadColumns(of.step, rows));
  if (of.minima)
    products = b.create<math::FmaOp>(
        loc, b.create<arith::SIToFPOp>(loc, type, of.minima),
        spreadColumns(of.dmin, rows), products);
  Value scale = spread(rows, add(index(packed.scales()), group));
  scale = b.create<arith::BitcastOp>(loc, type, scale);
  return b.create<math::FmaOp>(loc, products, scale, sum);
}
