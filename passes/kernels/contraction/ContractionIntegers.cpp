// Few rows × quantized weights as integer products (vpdpbusd): words of a
// micropanel are multiplied byte by byte with those of IntegerRows.cpp. A
// group's sum becomes f32 and is scaled at its end. Sums of integers are exact
// in any order.
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEmit.h"

using namespace mlir;
using namespace tessera;

static constexpr int64_t kWords = IntegerRows::kWords, kLine = 4 * kMicropanel;
// Prefetch distance of words into L1, in bytes.
static constexpr int64_t kNear = 4096;

// Columns of a block that only reads weights: so few that threads finish
// together, so many that dispatching a block is cheap.
int64_t tessera::integerColumns(const QuantizedLayout &layout) {
  constexpr int64_t kBytes = 64 << 10, kMost = 256;
  int64_t ofMicropanel = layout.words() * kMicropanel * 4;
  return std::clamp<int64_t>(kBytes / ofMicropanel, 1, kMost / kMicropanel) *
         kMicropanel;
}

// The block's first row among the packed rows.
Value ContractionEmitter::packedRow() {
  Value packedRow = index(0);
  for (unsigned dim : plan.outer)
    if (plan.dims[dim].lhs)
      packedRow = add(mul(packedRow, plan.dims[dim].size), outerIndices[dim]);
  return add(mul(packedRow, plan.rowDim().size), rowStart);
}

// i32 [rows], at index `at` of the packed rows.
Value ContractionEmitter::loadPacked(Value at, const StreamedRows &rows) {
  return b.create<tile::LoadOp>(
      loc, VectorType::get({rows.count}, b.getI32Type()), packedRows,
      ValueRange{add(firstPacked, rows.first), at}, ValueRange(),
      ArrayRef<int64_t>{0});
}

// Only the first tile of rows of a micropanel prefetches; the others find it in
// cache.
void ContractionEmitter::prefetchWeights(Value memory, Value micropanel,
                                         Value at, int64_t lines) {
  for (auto [bytes, locality] : prefetchDistances(target, kNear)) {
    int64_t ahead = std::max<int64_t>(bytes / (lines * kLine), 1);
    ContractionOps::prefetch(
        memory, {micropanel, add(at, index(ahead)), index(0)}, locality);
  }
}

// Lines of zero points are among those of scales.
void ContractionEmitter::prefetchScales(Value micropanel, Value group) {
  const QuantizedLayout &layout = plan.quant->layout;
  int64_t each = layout.scalesAt(1);
  for (int64_t line = 0; line < each; ++line)
    prefetchWeights(weights->scales, micropanel,
                    add(mul(group, each), index(line)),
                    layout.group / layout.perWord() / each);
}

// i32 [1, 16], at index `at` of a micropanel's words.
Value ContractionEmitter::loadWords(Value micropanel, Value at,
                                    bool prefetches) {
  if (prefetches)
    prefetchWeights(weights->words, micropanel, at, 1);
  return b.create<tile::LoadOp>(
      loc, VectorType::get({1, kMicropanel}, b.getI32Type()), weights->words,
      ValueRange{micropanel, at, index(0)}, ValueRange(),
      ArrayRef<int64_t>{1, 2});
}

// Multiplies a block's words by the rows' and adds them to the sums of upper
// and lower bytes.
void ContractionEmitter::emitIntegerBlock(Value micropanel, Value block,
                                          const StreamedRows &rows,
                                          Value &upper, Value &lower) {
  const QuantizedLayout &layout = plan.quant->layout;
  auto wordType = VectorType::get({1, kMicropanel}, b.getI32Type());
  auto left = VectorType::get({rows.count, 1}, b.getI32Type());
  auto number = [&](uint32_t value) -> Value {
    return b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(wordType, llvm::APInt(32, value)));
  };
  auto multiply = [&](Value word, int64_t at) {
    for (auto [part, sum] : {std::pair(int64_t(0), &upper), {1, &lower}}) {
      Value x = b.create<tile::LoadOp>(
          loc, left, packedRows,
          ValueRange{add(firstPacked, rows.first),
                     add(mul(block, 2 * kWords), index(part * kWords + at))},
          ValueRange(), ArrayRef<int64_t>{0, 1});
      *sum = b.create<tile::MmaOp>(loc, x, word, *sum);
    }
  };
  int64_t count = kQuantBlock / layout.perWord();
  for (int64_t i = 0; i < count; ++i) {
    Value word = loadWords(micropanel, add(mul(block, count), index(i)),
                           rows.prefetches);
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
Value ContractionEmitter::takeZeros(Value sums, Value micropanel, Value group) {
  auto type = cast<VectorType>(sums.getType());
  auto lanes = VectorType::get({kMicropanel}, b.getI32Type());
  Value zeros = b.create<arith::FPToSIOp>(loc, lanes,
                                          weights->loadZero(micropanel, group));
  Value offset = b.create<arith::ConstantOp>(
      loc, DenseElementsAttr::get(
               lanes, int32_t(IntegerRows::offset(plan.quant->layout))));
  zeros = b.create<arith::AddIOp>(loc, zeros, offset);
  return b.create<arith::MulIOp>(
      loc, sums,
      b.create<tile::BroadcastOp>(loc, type, zeros, ArrayRef<int64_t>{1}));
}

// `sum` and what a group of `size` columns adds to it.
Value ContractionEmitter::emitIntegerGroup(Value micropanel, Value group,
                                           const StreamedRows &rows,
                                           int64_t size, Value sum) {
  const QuantizedLayout &layout = plan.quant->layout;
  auto type = cast<VectorType>(sum.getType());
  VectorType integers = type.clone(b.getI32Type());
  auto spread = [&](Value x, VectorType to) -> Value {
    return b.create<tile::BroadcastOp>(loc, to, x, ArrayRef<int64_t>{0});
  };
  IntegerRows packed = integerRows(plan);
  // They are a second stream next to the words.
  if (rows.prefetches)
    prefetchScales(micropanel, group);
  Value upper = b.create<arith::ConstantOp>(loc, b.getZeroAttr(integers));
  Value lower =
      spread(loadPacked(add(index(packed.sums()), group), rows), integers);
  if (layout.zeros)
    lower = takeZeros(lower, micropanel, group);
  Value first = mul(group, layout.group / kQuantBlock);
  if (int64_t blocks = partsOf(size, kQuantBlock); blocks == 1) {
    emitIntegerBlock(micropanel, first, rows, upper, lower);
  } else {
    auto loop = b.create<scf::ForOp>(loc, index(0), index(blocks), index(1),
                                     ValueRange{upper, lower});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value up = loop.getRegionIterArgs()[0], low = loop.getRegionIterArgs()[1];
    emitIntegerBlock(micropanel, add(first, loop.getInductionVar()), rows, up,
                     low);
    b.create<scf::YieldOp>(loc, ValueRange{up, low});
    upper = loop.getResult(0);
    lower = loop.getResult(1);
  }
  Value eight = b.create<arith::ConstantOp>(
      loc, DenseElementsAttr::get(integers, int32_t(8)));
  Value whole = b.create<arith::AddIOp>(
      loc, b.create<arith::ShLIOp>(loc, upper, eight), lower);
  Value ofGroup = b.create<arith::SIToFPOp>(loc, type, whole);
  Value bits = loadPacked(add(index(packed.scales()), group), rows);
  Value rowScale = b.create<arith::BitcastOp>(
      loc, VectorType::get({rows.count}, b.getF32Type()), bits);
  ofGroup = b.create<arith::MulFOp>(loc, ofGroup, spread(rowScale, type));
  Value scale = b.create<tile::BroadcastOp>(
      loc, type, weights->loadScale(micropanel, group), ArrayRef<int64_t>{1});
  return b.create<math::FmaOp>(loc, ofGroup, scale, sum);
}
