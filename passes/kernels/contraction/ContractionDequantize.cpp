// Many rows × quantized weights, which are bound by multiplications: a block
// dequantizes its columns once, into the panels that other contractions stage.
// Products in matrix registers leave the processor's other units idle, so there
// panels are dequantized one at a time, interleaved with the products of the
// previous panel: only two panels are staged at once, and both are in a near
// cache.
#include "dialects/tile/Interleave.h"
#include "dialects/tile/TileQuantOps.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEmit.h"
#include "runtime/support/NormalFloat.h"

using namespace mlir;
using namespace tessera;

// Prefetch distance of words, in lines.
static constexpr int64_t kPrefetchDistance = 32;

// All panels of the chunk, one micropanel after another; only the first one if
// the others are interleaved later.
void ContractionEmitter::stageQuantColumns() {
  int64_t last = lastChunk();
  Value blocks = select(isLastOfSum, partsOf(last, kQuantBlock),
                        partsOf(tiles.chunk, kQuantBlock));
  auto stage = [&](Value panel, int64_t columns) {
    for (int64_t column = 0; column < columns; column += kMicropanel) {
      Value micropanel =
          micropanelOf(add(mul(panel, tiles.width), index(column)));
      if (absmax)
        stageAbsmax(micropanel);
      forEach(blocks, [&](Value block) {
        stageQuantBlock(micropanel, panel, column, block);
      });
    }
  };
  if (tiles.interleaves)
    stage(index(0), PackedRows::kTile);
  else
    forEachPanel(stage);
}

// Micropanels are terms of the sum here. One after another, all columns of the
// block, so that memory is read in runs.
void ContractionEmitter::stageQuantRows() {
  int64_t last = lastChunk();
  Value before =
      b.createOrFold<arith::DivUIOp>(loc, sumStart, index(kMicropanel));
  forEach(select(isLastOfSum, partsOf(last, kMicropanel),
                 partsOf(tiles.chunk, kMicropanel)),
          [&](Value i) {
            Value micropanel = add(before, i);
            if (groupMicropanel)
              micropanel = add(micropanel, groupMicropanel);
            if (absmax)
              stageAbsmax(micropanel);
            forEachPanel([&](Value panel, int64_t columns) {
              for (int64_t at = 0; at < columns; at += kMicropanel)
                stageQuantTile(micropanel, mul(i, kMicropanel), panel, at);
            });
          });
}

// 16 columns from `column` of a panel on, for the 16 terms of a micropanel from
// `depth` of the chunk on: dequantized with rows in lanes, and transposed.
void ContractionEmitter::stageQuantTile(Value micropanel, Value depth,
                                        Value panel, int64_t column) {
  const QuantizedLayout &layout = plan.quant->layout;
  Value k = matrixColumn(add(mul(panel, tiles.width), index(column)));
  Value at = b.createOrFold<arith::DivUIOp>(loc, k, index(layout.perWord()));
  SmallVector<Value> loaded;
  for (int64_t i = 0; i < kMicropanel / layout.perWord(); ++i)
    loaded.push_back(loadQuantWord(micropanel, add(at, index(i))));
  Value group = b.createOrFold<arith::DivUIOp>(loc, k, index(layout.group));
  Value value = scaleWeights(expandWords(loaded),
                             loadQuantScales(micropanel, group, kMicropanel));
  auto type = cast<VectorType>(value.getType());
  value = b.create<tile::TransposeOp>(loc, type, value);
  if (tiles.compute != b.getF32Type())
    value = b.create<arith::TruncFOp>(loc, type.clone(tiles.compute), value);
  b.create<tile::StoreOp>(loc, value, columnCopy,
                          ValueRange{panel, depth, index(column)}, ValueRange(),
                          ArrayRef<int64_t>{1, 2});
}

// The panel after `panel`, if there is one: so many blocks of terms, a word of
// 16 columns in each iteration.
void ContractionEmitter::stageNextPanel(Value panel, Value blocks) {
  constexpr int64_t kPanel = PackedRows::kTile;
  int64_t count = kQuantBlock / plan.quant->layout.perWord();
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
    QuantScales scales = loadQuantScales(micropanel, groupOf(block),
                                         plan.quant->layout.perWord());
    stageQuantWord({micropanel, slot, column}, scales, block,
                   remainder(word, index(count)), /*prefetches=*/true);
  });
}

// A block of the chunk and the micropanel at `column` of a panel.
void ContractionEmitter::stageQuantBlock(Value micropanel, Value panel,
                                         int64_t column, Value block) {
  QuantScales scales =
      loadQuantScales(micropanel, groupOf(block), plan.quant->layout.perWord());
  forEach(kQuantBlock / plan.quant->layout.perWord(), [&](Value i) {
    stageQuantWord({micropanel, panel, index(column)}, scales, block, i,
                   /*prefetches=*/false);
  });
}

// Of a block of the chunk.
Value ContractionEmitter::groupOf(Value block) {
  Value k = add(sumStart, mul(block, kQuantBlock));
  return b.createOrFold<arith::DivUIOp>(loc, k,
                                        index(plan.quant->layout.group));
}

// As f32 [terms, columns of a micropanel].
ContractionEmitter::QuantScales
ContractionEmitter::loadQuantScales(Value micropanel, Value group,
                                    int64_t terms) {
  const QuantizedLayout &layout = plan.quant->layout;
  auto wide = VectorType::get({terms, kMicropanel}, b.getF32Type());
  auto spread = [&](Value x) -> Value {
    return b.create<tile::BroadcastOp>(loc, wide, x, ArrayRef<int64_t>{1});
  };
  Value scale =
      spread(absmax ? loadAbsmax(group) : loadScale(micropanel, group));
  return {scale, layout.zeros ? spread(loadZero(micropanel, group)) : Value()};
}

Value ContractionEmitter::loadQuantWord(Value micropanel, Value at) {
  return b.create<tile::LoadOp>(
      loc, VectorType::get({kMicropanel}, b.getI32Type()), words,
      ValueRange{micropanel, at, index(0)}, ValueRange(), ArrayRef<int64_t>{2});
}

Value ContractionEmitter::expandWords(ArrayRef<Value> loaded) {
  const QuantizedLayout &layout = plan.quant->layout;
  int64_t perWord = layout.perWord(),
          terms = static_cast<int64_t>(loaded.size()) * perWord;
  auto type = VectorType::get({terms, kMicropanel}, b.getI32Type());
  VectorType wide = type.clone(b.getF32Type());
  auto perRow = [&](llvm::function_ref<int32_t(int64_t)> of) -> Value {
    SmallVector<int32_t> values;
    for (int64_t i = 0; i < terms; ++i)
      values.append(kMicropanel, of(i % perWord));
    return b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(type, ArrayRef(values)));
  };
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
  if (layout.bits == 8) {
    word = b.create<arith::ShLIOp>(
        loc, word, perRow([](int64_t at) { return 24 - 8 * at; }));
    return extendUpperBytes(b, loc, layout, word);
  }
  word = b.create<arith::ShRUIOp>(loc, word,
                                  perRow([](int64_t at) { return 4 * at; }));
  if (layout.nf4())
    return b.create<tile::LookupOp>(loc, wide, word, kNormalFloats);
  word = b.create<arith::AndIOp>(loc, word, perRow([](int64_t) { return 15; }));
  word = b.create<arith::SubIOp>(
      loc, word, perRow([&](int64_t) { return layout.offset(); }));
  return b.create<arith::SIToFPOp>(loc, wide, word);
}

Value ContractionEmitter::scaleWeights(Value q, const QuantScales &scales) {
  if (scales.zeros)
    q = b.create<arith::SubFOp>(loc, q, scales.zeros);
  return b.create<arith::MulFOp>(loc, q, scales.scale);
}

// Word `i` of a block: scale × q, or scale × (q - zero).
void ContractionEmitter::stageQuantWord(const StagedMicropanel &to,
                                        const QuantScales &scales, Value block,
                                        Value i, bool prefetches) {
  int64_t perWord = plan.quant->layout.perWord();
  Value k = add(sumStart, mul(block, kQuantBlock));
  Value first = b.createOrFold<arith::DivUIOp>(loc, k, index(perWord));
  Value place = add(first, i);
  if (prefetches)
    b.create<memref::PrefetchOp>(
        loc, words,
        ValueRange{to.micropanel, add(place, index(kPrefetchDistance)),
                   index(0)},
        /*isWrite=*/false, /*localityHint=*/2, /*isDataCache=*/true);
  Value value =
      scaleWeights(expandWords(loadQuantWord(to.micropanel, place)), scales);
  if (tiles.compute != b.getF32Type())
    value = b.create<arith::TruncFOp>(
        loc, cast<VectorType>(value.getType()).clone(tiles.compute), value);
  Value at = add(mul(block, kQuantBlock), mul(i, perWord));
  b.create<tile::StoreOp>(loc, value, columnCopy,
                          ValueRange{to.slot, at, to.column}, ValueRange(),
                          ArrayRef<int64_t>{1, 2});
}
