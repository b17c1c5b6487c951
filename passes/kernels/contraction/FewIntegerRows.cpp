// Few rows × quantized weights as integer products (vpdpbusd): words of a
// micropanel are multiplied byte by byte with those of IntegerRows.cpp. A
// group's sum becomes f32 and is scaled at its end. Sums of integers are exact
// in any order.
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/FewRows.h"

using namespace mlir;
using namespace tessera;

static constexpr int64_t kWords = IntegerRows::kWords;

namespace {
class FewIntegerRows : public FewRows {
public:
  FewIntegerRows(ContractionBlock &block, ContractionEpilogue &epilogue)
      : FewRows(block, epilogue), packed(integerRows(plan)) {}

private:
  void stageRows() override;
  Value addGroup(Value micropanel, Value group, const Rows &rows, int64_t size,
                 Value sum) override;
  Value loadRows(Value at, const Rows &rows) const;
  void multiplyBlock(Value micropanel, Value part, const Rows &rows,
                     Value &upper, Value &lower);
  Value takeZeros(Value sums, Value micropanel, Value group);

  IntegerRows packed;
  Value memory; ///< of the packed rows
  Value first;  ///< the block's first row of those
};
} // namespace

// An earlier launch has converted them.
void FewIntegerRows::stageRows() {
  memory = emitView(b, loc, block.kernel.getBuffers()[0], packed.view());
  first = block.firstIntegerRow();
}

// i32 [rows], at index `at` of the packed rows.
Value FewIntegerRows::loadRows(Value at, const Rows &rows) const {
  return load(VectorType::get({rows.count}, b.getI32Type()), memory,
              {add(first, rows.first), at}, {0});
}

// Multiplies a block's words by the rows' and adds them to the sums of upper
// and lower bytes.
void FewIntegerRows::multiplyBlock(Value micropanel, Value part,
                                   const Rows &rows, Value &upper,
                                   Value &lower) {
  auto wordType = VectorType::get({1, kMicropanel}, b.getI32Type());
  auto left = VectorType::get({rows.count, 1}, b.getI32Type());
  auto number = [&](uint32_t value) -> Value {
    return b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(wordType, llvm::APInt(32, value)));
  };
  auto multiply = [&](Value word, int64_t at) {
    for (auto [half, sum] : {std::pair(int64_t(0), &upper), {1, &lower}}) {
      Value x = load(left, memory,
                     {add(first, rows.first),
                      add(mul(part, 2 * kWords), index(half * kWords + at))},
                     {0, 1});
      *sum = b.create<tile::MmaOp>(loc, x, word, *sum);
    }
  };
  int64_t count = kQuantBlock / layout.perWord();
  for (int64_t i = 0; i < count; ++i) {
    Value word = loadWords(micropanel, add(mul(part, count), index(i)), rows);
    if (layout.bits == 8) {
      multiply(b.create<arith::XOrIOp>(loc, word, number(0x80808080u)), i);
      continue;
    }
    Value mask = number(0x0f0f0f0fu);
    multiply(b.create<arith::AndIOp>(loc, word, mask), i);
    word = b.create<arith::ShRUIOp>(loc, word, number(4));
    multiply(b.create<arith::AndIOp>(loc, word, mask), count + i);
  }
}

// Subtracts a group's `sums` of rows times the offset of its weights: zero
// points, and the offset that makes bytes unsigned. Intermediate results may
// overflow 32 bits, as long as the total does not.
Value FewIntegerRows::takeZeros(Value sums, Value micropanel, Value group) {
  auto type = cast<VectorType>(sums.getType());
  return b.create<arith::MulIOp>(
      loc, sums,
      b.create<tile::BroadcastOp>(loc, type,
                                  weights.loadOffset(micropanel, group),
                                  ArrayRef<int64_t>{1}));
}

// `sum` and what a group of `size` columns adds to it.
Value FewIntegerRows::addGroup(Value micropanel, Value group, const Rows &rows,
                               int64_t size, Value sum) {
  auto type = cast<VectorType>(sum.getType());
  VectorType integers = type.clone(b.getI32Type());
  auto spread = [&](Value x, VectorType to) -> Value {
    return b.create<tile::BroadcastOp>(loc, to, x, ArrayRef<int64_t>{0});
  };
  // They are a second stream next to the words.
  if (rows.prefetches)
    prefetchScales(micropanel, group);
  Value upper = zeros(integers);
  Value lower =
      spread(loadRows(add(index(packed.sums()), group), rows), integers);
  if (layout.zeros)
    lower = takeZeros(lower, micropanel, group);
  Value start = mul(group, layout.group / kQuantBlock);
  if (int64_t parts = partsOf(size, kQuantBlock); parts == 1) {
    multiplyBlock(micropanel, start, rows, upper, lower);
  } else {
    ValueRange ofParts =
        forRange(index(0), index(parts), 1, {upper, lower},
                 [&](Value i, ValueRange so) -> Values {
                   Value up = so[0], low = so[1];
                   multiplyBlock(micropanel, add(start, i), rows, up, low);
                   return {up, low};
                 });
    upper = ofParts[0];
    lower = ofParts[1];
  }
  Value eight = b.create<arith::ConstantOp>(
      loc, DenseElementsAttr::get(integers, int32_t(8)));
  Value whole = b.create<arith::AddIOp>(
      loc, b.create<arith::ShLIOp>(loc, upper, eight), lower);
  Value ofGroup = b.create<arith::SIToFPOp>(loc, type, whole);
  Value bits = loadRows(add(index(packed.scales()), group), rows);
  Value rowScale = b.create<arith::BitcastOp>(
      loc, VectorType::get({rows.count}, b.getF32Type()), bits);
  ofGroup = b.create<arith::MulFOp>(loc, ofGroup, spread(rowScale, type));
  Value scale = b.create<tile::BroadcastOp>(
      loc, type, weights.loadScale(micropanel, group), ArrayRef<int64_t>{1});
  return b.create<math::FmaOp>(loc, ofGroup, scale, sum);
}

std::unique_ptr<ContractionEngine>
tessera::fewIntegerRows(ContractionBlock &block,
                        ContractionEpilogue &epilogue) {
  return std::make_unique<FewIntegerRows>(block, epilogue);
}
