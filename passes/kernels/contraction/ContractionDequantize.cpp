// Many rows × quantized weights, which are bound by multiplications: a block
// dequantizes its columns once, into the panels that other contractions stage.
// Products in matrix registers leave the processor's other units idle, so there
// panels are dequantized one at a time, interleaved with the products of the
// previous panel: only two panels are staged at once, and both are in a near
// cache.
#include "dialects/tile/Interleave.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEmit.h"

using namespace mlir;
using namespace tessera;

static constexpr int64_t kMicropanel = QuantizedLayout::kMicropanel,
                         kBlock = QuantizedLayout::kBlock;
// Prefetch distance of words, in lines.
static constexpr int64_t kPrefetchDistance = 32;

// Whether panels are dequantized one by one, each interleaved with the products
// of the previous one. A panel is then staged only once: all rows of the block
// are multiplied by it as one group, and it is not read again, neither with
// other rows nor to pad its terms (padColumns).
bool ContractionEmitter::interleavesDequantization() const {
  return packed && !plan.isMicropanels() && !plan.groups &&
         plan.blockRows <= groupRows &&
         plan.sum.size % PackedRows::kTerms == 0 &&
         plan.blockColumns % PackedRows::kTile == 0 &&
         plan.columnDim().size % plan.blockColumns == 0;
}

// All panels of the chunk, one micropanel after another; only the first one if
// the others are interleaved later.
void ContractionEmitter::stageQuantColumns() {
  int64_t last = plan.sum.size - (chunksOfSum - 1) * chunk;
  Value blocks =
      select(isLastOfSum, partsOf(last, kBlock), partsOf(chunk, kBlock));
  auto stage = [&](Value panel, int64_t columns) {
    for (int64_t column = 0; column < columns; column += kMicropanel) {
      Value micropanel = micropanelOf(add(mul(panel, width), index(column)));
      forEach(blocks, [&](Value block) {
        stageQuantBlock(micropanel, panel, column, block);
      });
    }
  };
  if (interleavesDequantization())
    stage(index(0), PackedRows::kTile);
  else
    forEachPanel(stage);
}

// The panel after `panel`, if there is one: so many blocks of terms, a word of
// 16 columns in each iteration.
void ContractionEmitter::stageNextPanel(Value panel, Value blocks) {
  constexpr int64_t kPanel = PackedRows::kTile;
  int64_t count = kBlock / plan.quant->layout.perWord();
  Value words = mul(blocks, count),
        iterations = mul(words, kPanel / kMicropanel);
  Value zero = index(0), one = index(1), next = add(panel, one);
  Value isThere = b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ult, next,
                                          index(plan.blockColumns / kPanel));
  auto remainder = [&](Value x, Value y) -> Value {
    return b.createOrFold<arith::RemUIOp>(loc, x, y);
  };
  Value slot = remainder(next, index(kSlots));
  auto loop = b.create<scf::ForOp>(loc, zero, iterations, one);
  loop->setAttr(tile::kInterleaveAttr, b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  ifElse(isThere, [&] {
    Value iteration = loop.getInductionVar();
    Value column =
        mul(b.createOrFold<arith::DivUIOp>(loc, iteration, words), kMicropanel);
    Value word = remainder(iteration, words);
    Value block = b.createOrFold<arith::DivUIOp>(loc, word, index(count));
    Value micropanel = micropanelOf(add(mul(next, kPanel), column));
    QuantScales scales = loadQuantScales(micropanel, block);
    stageQuantWord({micropanel, slot, column}, scales, block,
                   remainder(word, index(count)), /*prefetches=*/true);
  });
}

// A block of the chunk and the micropanel at `column` of a panel.
void ContractionEmitter::stageQuantBlock(Value micropanel, Value panel,
                                         int64_t column, Value block) {
  QuantScales scales = loadQuantScales(micropanel, block);
  forEach(kBlock / plan.quant->layout.perWord(), [&](Value i) {
    stageQuantWord({micropanel, panel, index(column)}, scales, block, i,
                   /*prefetches=*/false);
  });
}

// Of the weights of a block of the chunk, as f32 [terms of a word, columns].
ContractionEmitter::QuantScales
ContractionEmitter::loadQuantScales(Value micropanel, Value block) {
  const QuantizedLayout &layout = plan.quant->layout;
  auto wide = VectorType::get({layout.perWord(), kMicropanel}, b.getF32Type());
  Value k = add(sumStart, mul(block, kBlock));
  Value group = b.createOrFold<arith::DivUIOp>(loc, k, index(layout.group));
  auto spread = [&](Value x) -> Value {
    return b.create<tile::BroadcastOp>(loc, wide, x, ArrayRef<int64_t>{1});
  };
  Value scale = spread(loadScale(micropanel, group));
  return {scale, layout.zeros ? spread(loadZero(micropanel, group)) : Value()};
}

// Word `i` of a block: scale × q, or scale × (q - zero).
void ContractionEmitter::stageQuantWord(const StagedMicropanel &to,
                                        const QuantScales &scales, Value block,
                                        Value i, bool prefetches) {
  const QuantizedLayout &layout = plan.quant->layout;
  int64_t perWord = layout.perWord();
  auto type = VectorType::get({perWord, kMicropanel}, b.getI32Type());
  VectorType wide = type.clone(b.getF32Type());
  auto perRow = [&](llvm::function_ref<int32_t(int64_t)> of) -> Value {
    SmallVector<int32_t> values;
    for (int64_t i = 0; i < perWord; ++i)
      values.append(kMicropanel, of(i));
    return b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(type, ArrayRef(values)));
  };
  Value k = add(sumStart, mul(block, kBlock));
  Value first = b.createOrFold<arith::DivUIOp>(loc, k, index(perWord));
  Value place = add(first, i);
  if (prefetches)
    b.create<memref::PrefetchOp>(
        loc, words,
        ValueRange{to.micropanel, add(place, index(kPrefetchDistance)),
                   index(0)},
        /*isWrite=*/false, /*localityHint=*/2, /*isDataCache=*/true);
  Value loaded = b.create<tile::LoadOp>(
      loc, VectorType::get({kMicropanel}, b.getI32Type()), words,
      ValueRange{to.micropanel, place, index(0)}, ValueRange(),
      ArrayRef<int64_t>{2});
  Value word =
      b.create<tile::BroadcastOp>(loc, type, loaded, ArrayRef<int64_t>{1});
  Value value;
  if (layout.bits == 4) {
    word = b.create<arith::ShRUIOp>(loc, word,
                                    perRow([](int64_t at) { return 4 * at; }));
    word =
        b.create<arith::AndIOp>(loc, word, perRow([](int64_t) { return 15; }));
    word = b.create<arith::SubIOp>(
        loc, word, perRow([&](int64_t) { return layout.offset(); }));
    value = b.create<arith::SIToFPOp>(loc, wide, word);
  } else {
    word = b.create<arith::ShLIOp>(
        loc, word, perRow([](int64_t at) { return 24 - 8 * at; }));
    value = extendUpperBytes(b, loc, layout, word);
  }
  if (scales.zeros)
    value = b.create<arith::SubFOp>(loc, value, scales.zeros);
  value = b.create<arith::MulFOp>(loc, value, scales.scale);
  if (compute != b.getF32Type())
    value = b.create<arith::TruncFOp>(loc, type.clone(compute), value);
  Value at = add(mul(block, kBlock), mul(i, perWord));
  b.create<tile::StoreOp>(loc, value, rhs.shared,
                          ValueRange{to.slot, at, to.column}, ValueRange(),
                          ArrayRef<int64_t>{1, 2});
}
