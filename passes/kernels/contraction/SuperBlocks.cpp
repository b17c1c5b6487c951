// Weights of super-blocks, llama.cpp's K-quants
// (runtime/support/SuperBlocks.h).
#include "runtime/support/SuperBlocks.h"
#include "passes/kernels/contraction/QuantWeights.h"

using namespace mlir;
using namespace tessera;

static constexpr int64_t kSuper = QuantizedLayout::kSuperBlock;

Value SuperBlockWeights::number(Type type, uint32_t value) const {
  return b.create<arith::ConstantOp>(
      loc,
      DenseElementsAttr::get(cast<VectorType>(type), llvm::APInt(32, value)));
}

// i32 [16].
Value SuperBlockWeights::splatWord(Value value) const {
  Value word = b.create<arith::IndexCastOp>(loc, b.getI32Type(), value);
  return b.create<tile::BroadcastOp>(
      loc, VectorType::get({kMicropanel}, b.getI32Type()), word,
      ArrayRef<int64_t>{});
}

//===--- scales -----------------------------------------------------------===//

// The f16 at a bit of the first word of a super-block's scales.
Value SuperBlockWeights::loadHalf(Value micropanel, Value super,
                                  int64_t shift) const {
  Value word = weights.loadWord(weights.scales, micropanel,
                                mul(super, QuantizedLayout::kSuperScales));
  auto type = cast<VectorType>(word.getType());
  if (shift)
    word = b.create<arith::ShRUIOp>(loc, word, number(type, shift));
  Value half = b.create<arith::TruncIOp>(loc, type.clone(b.getI16Type()), word);
  half = b.create<arith::BitcastOp>(loc, type.clone(b.getF16Type()), half);
  return b.create<arith::ExtFOp>(loc, type.clone(b.getF32Type()), half);
}

Value SuperBlockWeights::loadD(Value micropanel, Value super) const {
  return loadHalf(micropanel, super, 0);
}

Value SuperBlockWeights::loadDmin(Value micropanel, Value super) const {
  return loadHalf(micropanel, super, 16);
}

Value SuperBlockWeights::loadBytes(Value micropanel, Value super,
                                   Value i) const {
  return weights.loadWord(
      weights.scales, micropanel,
      add(add(mul(super, QuantizedLayout::kSuperScales), index(1)), i));
}

// Scales without minima are signed.
Value SuperBlockWeights::extendByteAt(Value word, Value shift) const {
  Type type = word.getType();
  Value byte;
  if (layout.minima()) {
    byte = b.create<arith::AndIOp>(
        loc, b.create<arith::ShRUIOp>(loc, word, shift), number(type, 255));
  } else {
    Value top = number(type, 24);
    byte = b.create<arith::ShLIOp>(
        loc, word, b.createOrFold<arith::SubIOp>(loc, top, shift));
    byte = b.create<arith::ShRSIOp>(loc, byte, top);
  }
  return b.create<arith::SIToFPOp>(
      loc, cast<VectorType>(type).clone(b.getF32Type()), byte);
}

Value SuperBlockWeights::extendByte(Value word, int64_t at) const {
  return extendByteAt(word, number(word.getType(), 8 * at));
}

// Byte `first` + the part of column k of the 16.
Value SuperBlockWeights::loadPart(Value micropanel, Value k,
                                  int64_t first) const {
  Value super = div(k, kSuper),
        part = div(rem(k, kSuper), layout.scaleColumns());
  Value bytes =
      loadBytes(micropanel, super, add(div(part, 4), index(first / 4)));
  return extendByteAt(bytes, splatWord(mul(rem(part, 4), 8)));
}

Value SuperBlockWeights::loadScale(Value micropanel, Value k) const {
  return b.create<arith::MulFOp>(loc, loadD(micropanel, div(k, kSuper)),
                                 loadPart(micropanel, k, 0));
}

Value SuperBlockWeights::loadMinimum(Value micropanel, Value k) const {
  return b.create<arith::MulFOp>(loc, loadDmin(micropanel, div(k, kSuper)),
                                 loadPart(micropanel, k, 8));
}

//===--- integers ---------------------------------------------------------===//

Value SuperBlockWeights::loadIntegers(Value micropanel, Value k,
                                      int64_t terms) const {
  const int64_t perWord = layout.perWord(), width = layout.bits - 4;
  auto type = VectorType::get({terms, kMicropanel}, b.getI32Type());
  auto perRow = [&](llvm::function_ref<int32_t(int64_t)> of) -> Value {
    SmallVector<int32_t> values;
    for (int64_t term = 0; term < terms; ++term)
      values.append(kMicropanel, of(term));
    return b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(type, ArrayRef(values)));
  };
  Value first = mul(div(k, kQuantBlock), layout.bits),
        i = div(rem(k, kQuantBlock), perWord);
  SmallVector<Value> low;
  for (int64_t j = 0; j < terms / perWord; ++j)
    low.push_back(weights.loadWord(weights.words, micropanel,
                                   add(add(first, i), index(j))));
  Value q = b.create<arith::ShRUIOp>(
      loc, weights.spreadWords(low),
      perRow([&](int64_t term) { return 4 * (term % perWord); }));
  q = b.create<arith::AndIOp>(loc, q, number(type, 15));
  if (width) {
    // Words i of a block follow each other in bytes of the upper words.
    const int64_t ofWord = 2 * width, wordsOf = 8 / ofWord;
    Value upper =
        weights.loadWord(weights.words, micropanel,
                         add(add(first, index(kLowWords)), div(i, wordsOf)));
    upper = b.create<arith::ShRUIOp>(loc, upper,
                                     splatWord(mul(rem(i, wordsOf), ofWord)));
    Value bits =
        b.create<tile::BroadcastOp>(loc, type, upper, ArrayRef<int64_t>{1});
    bits = b.create<arith::ShRUIOp>(loc, bits, perRow([&](int64_t term) {
                                      return upperBitsAt(layout.bits, term).bit;
                                    }));
    bits = b.create<arith::AndIOp>(loc, bits, number(type, (1u << width) - 1));
    bits = b.create<arith::ShLIOp>(loc, bits, number(type, 4));
    q = b.create<arith::OrIOp>(loc, q, bits);
  }
  if (layout.offset())
    q = b.create<arith::SubIOp>(loc, q, number(type, layout.offset()));
  return b.create<arith::SIToFPOp>(loc, type.clone(b.getF32Type()), q);
}

SmallVector<int64_t> SuperBlockWeights::wordsOf(int64_t i, int64_t odd) const {
  if (layout.bits == 4)
    return {i};
  return {i, upperBitsAt(layout.bits, 8 * i + odd).word};
}

Value SuperBlockWeights::bytesOf(ArrayRef<Value> words, int64_t i,
                                 int64_t odd) const {
  Type type = words[i].getType();
  Value low = words[i];
  if (odd)
    low = b.create<arith::ShRUIOp>(loc, low, number(type, 4));
  low = b.create<arith::AndIOp>(loc, low, number(type, 0x0f0f0f0f));
  if (layout.bits == 4)
    return low;
  const auto [word, bit] = upperBitsAt(layout.bits, 8 * i + odd);
  Value upper = words[word];
  if (bit < 4)
    upper = b.create<arith::ShLIOp>(loc, upper, number(type, 4 - bit));
  if (bit > 4)
    upper = b.create<arith::ShRUIOp>(loc, upper, number(type, bit - 4));
  const uint32_t mask = layout.bits == 5 ? 0x10101010 : 0x30303030;
  upper = b.create<arith::AndIOp>(loc, upper, number(type, mask));
  return b.create<arith::OrIOp>(loc, low, upper);
}
