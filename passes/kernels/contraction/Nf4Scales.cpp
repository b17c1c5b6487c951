// Absmax of NF4 weights (runtime/support/QuantizedLayout.h).
#include "dialects/tile/TileQuantOps.h"
#include "passes/kernels/contraction/QuantWeights.h"
#include "runtime/support/NormalFloat.h"

using namespace mlir;
using namespace tessera;

static constexpr int64_t kGroup = QuantizedLayout::kNf4Group,
                         kAbsmax = QuantizedLayout::kNf4Absmax;

// Groups of so many columns, wherever they begin.
static int64_t groupsOf(int64_t columns) { return columns / kGroup + 2; }

void Nf4Scales::allocate() {
  int64_t columns = plan.quant->sumsRows ? plan.blockColumns : tiles.chunk;
  absmax = block.allocate({groupsOf(columns), kMicropanel}, b.getF32Type());
}

Value Nf4Scales::firstGroup() const {
  return div(plan.quant->sumsRows ? block.matrixColumn(index(0))
                                  : block.sumStart,
             kGroup);
}

Value Nf4Scales::load(Value group) const {
  return ContractionOps::load(VectorType::get({kMicropanel}, b.getF32Type()),
                              absmax, {sub(group, firstGroup()), index(0)},
                              {1});
}

// i32 [16].
Value Nf4Scales::splatWord(Value value) const {
  Value word = b.create<arith::IndexCastOp>(loc, b.getI32Type(), value);
  return b.create<tile::BroadcastOp>(
      loc, VectorType::get({kMicropanel}, b.getI32Type()), word,
      ArrayRef<int64_t>{});
}

// dynamicFloat (NormalFloat.h) of indices 0 to 255.
Value Nf4Scales::dynamicNumbers(Value codes) const {
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

void Nf4Scales::stage(Value micropanel) {
  const QuantizedLayout &layout = weights.layout;
  int64_t groups = layout.groups(), spans = layout.nf4Spans();
  auto words = VectorType::get({kMicropanel}, b.getI32Type());
  VectorType floats = words.clone(b.getF32Type());
  auto loadFloats = [&](int64_t at) -> Value {
    return b.create<arith::BitcastOp>(
        loc, floats, weights.loadWord(weights.scales, micropanel, index(at)));
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
  Value first = firstGroup();
  Value left = sub(index(groups), first);
  int64_t most = cast<MemRefType>(absmax.getType()).getDimSize(0);
  Value count = b.create<arith::MinUIOp>(loc, left, index(most));
  forEach(count, [&](Value i) {
    Value group = add(first, i);
    auto ofWord = [&](Value quotient) {
      return add(quotient, index(1 + spans));
    };
    Value codes =
        weights.loadWord(weights.scales, micropanel, ofWord(div(group, 4)));
    Value shift = mul(rem(group, 4), 8);
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
    store(value, absmax, {i, index(0)}, {1});
  });
}
