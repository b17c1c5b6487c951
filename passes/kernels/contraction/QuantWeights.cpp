#include "passes/kernels/contraction/QuantWeights.h"
#include "passes/kernels/ClusterLaunch.h"

using namespace mlir;
using namespace tessera;

Value tessera::micropanelView(ContractionBlock &block, unsigned argument,
                              int64_t middle) {
  return emitView(
      block.b, block.loc, block.arguments[argument],
      {{},
       0,
       {block.plan.quant->layout.micropanels(), middle, kMicropanel},
       {middle * kMicropanel, kMicropanel, 1}});
}

QuantWeights::QuantWeights(ContractionBlock &block)
    : ContractionPart(block), layout(plan.quant->layout) {
  words = micropanelView(block, plan.rhs.argument, layout.words());
  scales = micropanelView(block, *plan.quant->scales, layout.scaleRows());
}

Value QuantWeights::loadWord(Value memory, Value micropanel, Value at) const {
  return load(VectorType::get({kMicropanel}, b.getI32Type()), memory,
              {micropanel, at, index(0)}, {2});
}

// 2^(exponent - 127) of a byte of a word; of 0 it is subnormal.
Value tessera::extendExponent(OpBuilder &b, Location loc, Value word,
                              Value shift) {
  Type words = word.getType();
  auto number = [&](uint32_t value) -> Value {
    if (auto type = dyn_cast<VectorType>(words))
      return b.create<arith::ConstantOp>(
          loc, DenseElementsAttr::get(type, llvm::APInt(32, value)));
    return b.create<arith::ConstantOp>(
        loc, b.getI32IntegerAttr(static_cast<int32_t>(value)));
  };
  Value bits = b.create<arith::AndIOp>(
      loc, b.create<arith::ShRUIOp>(loc, word, shift), number(255));
  bits = b.create<arith::ShLIOp>(loc, bits, number(23));
  bits = b.create<arith::MaxUIOp>(loc, bits, number(1u << 22));
  Type wide = b.getF32Type();
  if (auto type = dyn_cast<VectorType>(words))
    wide = type.clone(wide);
  return b.create<arith::BitcastOp>(loc, wide, bits);
}

Value QuantWeights::loadExponents(Value micropanel, Value group) const {
  Value word = loadWord(scales, micropanel, div(group, 4));
  Value shift =
      b.create<arith::IndexCastOp>(loc, b.getI32Type(), mul(rem(group, 4), 8));
  shift = b.create<tile::BroadcastOp>(loc, word.getType(), shift,
                                      ArrayRef<int64_t>{});
  return extendExponent(b, loc, word, shift);
}

Value QuantWeights::loadScale(Value micropanel, Value group) const {
  if (layout.mxfp4())
    return loadExponents(micropanel, group);
  return loadScales(micropanel, mul(group, layout.scalesAt(1)));
}

Value QuantWeights::loadZero(Value micropanel, Value group) const {
  return loadScales(micropanel, add(mul(group, 2), index(1)));
}

Value QuantWeights::loadOffset(Value micropanel, Value group) const {
  auto type = VectorType::get({kMicropanel}, b.getI32Type());
  Value zeros =
      b.create<arith::FPToSIOp>(loc, type, loadZero(micropanel, group));
  Value offset = b.create<arith::ConstantOp>(
      loc, DenseElementsAttr::get(type, int32_t(IntegerRows::offset(layout))));
  return b.create<arith::AddIOp>(loc, zeros, offset);
}

Value QuantWeights::loadScales(Value micropanel, Value at) const {
  auto narrow = VectorType::get({kMicropanel}, b.getF16Type());
  Value loaded = load(narrow, scales, {micropanel, at, index(0)}, {2});
  return b.create<arith::ExtFOp>(loc, narrow.clone(b.getF32Type()), loaded);
}

Value QuantWeights::spreadWords(ArrayRef<Value> loaded) const {
  int64_t perWord = layout.perWord(),
          terms = static_cast<int64_t>(loaded.size()) * perWord;
  auto type = VectorType::get({terms, kMicropanel}, b.getI32Type());
  Value word;
  for (auto [i, each] : llvm::enumerate(loaded)) {
    Value all =
        b.create<tile::BroadcastOp>(loc, type, each, ArrayRef<int64_t>{1});
    if (!word) {
      word = all;
      continue;
    }
    SmallVector<bool> isFrom; // this word or a later one
    for (int64_t term = 0; term < terms; ++term)
      isFrom.append(kMicropanel, term / perWord >= int64_t(i));
    Value mask = b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(type.clone(b.getI1Type()),
                                    ArrayRef<bool>(isFrom)));
    word = b.create<arith::SelectOp>(loc, mask, all, word);
  }
  return word;
}

SmallVector<Prefetch, 2> tessera::prefetchDistances(const TileTarget &target,
                                                    int64_t near) {
  if (!target.prefetchDistance)
    return {{near, 3}};
  return {{target.prefetchDistance, 2}, {near, 3}};
}

//===--- weights of 8 bits ------------------------------------------------===//

// Exponent and fraction are four bits to the right of those of f32; 120 is
// added to the exponent, which gives the value of a normal number. With 121 and
// minus 2^-6 a subnormal one has its value, and a normal one at least that: the
// smaller of both is right. A product by 2^120 would be shorter, but processors
// take a hundred cycles and more for subnormal operands.
static Value extendFloats(OpBuilder &b, Location loc, Value words) {
  auto type = cast<VectorType>(words.getType());
  VectorType wide = type.clone(b.getF32Type());
  auto number = [&](uint32_t value) -> Value {
    return b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(type, llvm::APInt(32, value)));
  };
  Value sign = b.create<arith::AndIOp>(loc, words, number(0x80000000u)),
        rest = b.create<arith::ShRUIOp>(loc, words, number(4));
  rest = b.create<arith::AndIOp>(loc, rest, number(0x07f00000u));
  Value normal = b.create<arith::AddIOp>(loc, rest, number(120u << 23)),
        raised = b.create<arith::AddIOp>(loc, rest, number(121u << 23));
  Value least =
      b.create<arith::ConstantOp>(loc, DenseElementsAttr::get(wide, 0x1p-6f));
  Value subnormal = b.create<arith::BitcastOp>(
      loc, type,
      b.create<arith::SubFOp>(
          loc, b.create<arith::BitcastOp>(loc, wide, raised), least));
  Value magnitude = b.create<arith::MinUIOp>(loc, normal, subnormal);
  return b.create<arith::BitcastOp>(
      loc, wide, b.create<arith::OrIOp>(loc, sign, magnitude));
}

Value tessera::extendUpperBytes(OpBuilder &b, Location loc,
                                const QuantizedLayout &layout, Value words) {
  if (layout.floats)
    return extendFloats(b, loc, words);
  auto type = cast<VectorType>(words.getType());
  Value bits = b.create<arith::ConstantOp>(
      loc, DenseElementsAttr::get(type, llvm::APInt(32, 24)));
  return b.create<arith::SIToFPOp>(loc, type.clone(b.getF32Type()),
                                   b.create<arith::ShRSIOp>(loc, words, bits));
}
