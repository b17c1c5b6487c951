// NF4 weights (runtime/support/QuantizedLayout.h): the absmax of a micropanel's
// groups, which are quantized themselves, are dequantized to shared memory
// before the weights that they scale, once for all of a block's reads.
#include "dialects/tile/TileQuantOps.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEmit.h"
#include "runtime/support/NormalFloat.h"

using namespace mlir;
using namespace tessera;

static constexpr int64_t kGroup = QuantizedLayout::kNf4Group,
                         kAbsmax = QuantizedLayout::kNf4Absmax;

// Groups of so many columns, wherever they begin.
static int64_t groupsOf(int64_t columns) { return columns / kGroup + 2; }

void ContractionEmitter::allocateAbsmax() {
  int64_t columns = plan.quant->sumsRows ? plan.blockColumns : tiles.chunk;
  absmax = b.create<tile::AllocOp>(
      loc, MemRefType::get(
               {groupsOf(columns), kMicropanel}, b.getF32Type(), AffineMap(),
               tile::SharedAttr::get(b.getContext(), tile::Layout::rows)));
}

Value ContractionEmitter::firstAbsmax() {
  Value k = plan.quant->sumsRows ? matrixColumn(index(0)) : sumStart;
  return b.createOrFold<arith::DivUIOp>(loc, k, index(kGroup));
}

Value ContractionEmitter::loadAbsmax(Value group) {
  Value at = b.createOrFold<arith::SubIOp>(loc, group, firstAbsmax());
  return b.create<tile::LoadOp>(
      loc, VectorType::get({kMicropanel}, b.getF32Type()), absmax,
      ValueRange{at, index(0)}, ValueRange(), ArrayRef<int64_t>{1});
}

// i32 [16].
Value ContractionEmitter::splatWord(Value value) {
  Value word = b.create<arith::IndexCastOp>(loc, b.getI32Type(), value);
  return b.create<tile::BroadcastOp>(
      loc, VectorType::get({kMicropanel}, b.getI32Type()), word,
      ArrayRef<int64_t>{});
}

// i32 [16].
Value ContractionEmitter::loadScaleWords(Value micropanel, Value at) {
  return b.create<tile::LoadOp>(
      loc, VectorType::get({kMicropanel}, b.getI32Type()), scales,
      ValueRange{micropanel, at, index(0)}, ValueRange(), ArrayRef<int64_t>{2});
}

// dynamicFloat (NormalFloat.h) of indices 0 to 255.
Value ContractionEmitter::dynamicNumbers(Value codes) {
  auto words = cast<VectorType>(codes.getType());
  VectorType floats = words.clone(b.getF32Type());
  auto word = [&](uint32_t value) -> Value {
    return b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(words, llvm::APInt(32, value)));
  };
  auto number = [&](float value) -> Value {
    return b.create<arith::ConstantOp>(loc,
                                       DenseElementsAttr::get(floats, value));
  };
  auto lookUp = [&](Value at, ArrayRef<float> table) -> Value {
    return b.create<tile::LookupOp>(loc, floats, at, table);
  };
  Value difference = b.create<arith::SubIOp>(loc, codes, word(127));
  Value negated = b.create<arith::SubIOp>(loc, word(0), difference);
  Value magnitude = b.create<arith::MaxSIOp>(loc, difference, negated);
  Value bits = b.create<arith::BitcastOp>(
      loc, words, b.create<arith::SIToFPOp>(loc, floats, magnitude));
  Value mantissa = b.create<arith::OrIOp>(
      loc, b.create<arith::AndIOp>(loc, bits, word(0x7fffff)),
      word(0x3f800000));
  Value fraction = b.create<arith::SubFOp>(
      loc, b.create<arith::BitcastOp>(loc, floats, mantissa), number(1));
  Value at = b.create<arith::ShRUIOp>(loc, bits, word(23));
  Value middle = b.create<arith::AddFOp>(
      loc, b.create<arith::MulFOp>(loc, fraction, number(0.9f)),
      lookUp(at, kDynamicMeans));
  Value sign = b.create<arith::MinSIOp>(
      loc, b.create<arith::MaxSIOp>(loc, difference, word(-1)), word(1));
  Value value =
      b.create<arith::MulFOp>(loc, middle, lookUp(at, kDynamicPowers));
  return b.create<arith::MulFOp>(loc, value,
                                 b.create<arith::SIToFPOp>(loc, floats, sign));
}

void ContractionEmitter::stageAbsmax(Value micropanel) {
  const QuantizedLayout &layout = plan.quant->layout;
  int64_t groups = layout.groups(), spans = layout.nf4Spans();
  auto words = VectorType::get({kMicropanel}, b.getI32Type());
  VectorType floats = words.clone(b.getF32Type());
  auto loadFloats = [&](int64_t at) -> Value {
    return b.create<arith::BitcastOp>(loc, floats,
                                      loadScaleWords(micropanel, index(at)));
  };
  Value offset = loadFloats(0);
  SmallVector<Value> absmax2;
  for (int64_t i = 0; i < spans; ++i)
    absmax2.push_back(loadFloats(1 + i));
  // The position of each row's first absmax in its 256.
  Value begin;
  if (spans > 1) {
    Value row =
        b.create<tile::IotaOp>(loc, words, mul(micropanel, kMicropanel), 0);
    begin = b.create<arith::MulIOp>(loc, row, splatWord(index(groups)));
    begin = b.create<arith::AndIOp>(loc, begin, splatWord(index(kAbsmax - 1)));
  }
  Value first = firstAbsmax();
  Value left = b.createOrFold<arith::SubIOp>(loc, index(groups), first);
  int64_t most = cast<MemRefType>(absmax.getType()).getDimSize(0);
  Value count = b.create<arith::MinUIOp>(loc, left, index(most));
  forEach(count, [&](Value i) {
    Value group = add(first, i);
    auto ofWord = [&](Value quotient) {
      return add(quotient, index(1 + spans));
    };
    Value codes = loadScaleWords(
        micropanel,
        ofWord(b.createOrFold<arith::DivUIOp>(loc, group, index(4))));
    Value shift = mul(b.createOrFold<arith::RemUIOp>(loc, group, index(4)), 8);
    codes = b.create<arith::ShRUIOp>(loc, codes, splatWord(shift));
    codes = b.create<arith::AndIOp>(loc, codes, splatWord(index(255)));
    Value part = absmax2[0];
    for (int64_t span = 1; span < spans; ++span) {
      Value at = b.create<arith::AddIOp>(loc, begin, splatWord(group));
      Value isThere = b.create<arith::CmpIOp>(
          loc, arith::CmpIPredicate::uge, at, splatWord(index(span * kAbsmax)));
      part = b.create<arith::SelectOp>(loc, isThere, absmax2[span], part);
    }
    Value value = b.create<arith::AddFOp>(
        loc, b.create<arith::MulFOp>(loc, dynamicNumbers(codes), part), offset);
    b.create<tile::StoreOp>(loc, value, absmax, ValueRange{i, index(0)},
                            ValueRange(), ArrayRef<int64_t>{1});
  });
}
