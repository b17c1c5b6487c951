// Many rows × quantized weights, which are bound by multiplications: a block
// dequantizes its columns once, into the panels that other contractions stage.
// Products in matrix registers leave the processor's other units idle, so there
// panels are dequantized one at a time, interleaved with the products of the
// previous panel: only two panels are staged at once, and both are in a near
// cache.
#include "dialects/tile/Interleave.h"
#include "dialects/tile/TileQuantOps.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ColumnSource.h"
#include "passes/kernels/contraction/QuantWeights.h"
#include "runtime/support/Mxfp4.h"
#include "runtime/support/NormalFloat.h"

using namespace mlir;
using namespace tessera;

// Prefetch distance of words, in lines.
static constexpr int64_t kPrefetchDistance = 32;

namespace {
class QuantColumns : public ColumnSource {
public:
  explicit QuantColumns(ContractionBlock &block)
      : ColumnSource(block), weights(block), layout(weights.layout),
        superBlocks(weights) {}
  void allocateScales() override;
  void stage() override {
    plan.quant->sumsRows ? stageRowSums() : stagePanels();
  }
  void stageNext(Value panel, Value blocks) override;
  Value loadInPlace(const TilePlace &, Value, Value, int64_t) override {
    llvm_unreachable("quantized columns are staged");
  }
  Panel panelInPlace(Value) override {
    llvm_unreachable("quantized columns are staged");
  }

private:
  /// A word of 16 columns, [terms of a word, columns]; `zeros` and `minima` may
  /// be null.
  struct Scales {
    Value scale, zeros, minima;
  };
  /// A micropanel of the weights and its destination: a panel's slot, a column
  /// of it.
  struct Destination {
    Value micropanel, slot, column;
  };
  void stagePanels();
  void stageRowSums();
  void stageTile(Value micropanel, Value depth, Value panel, int64_t column);
  Value dequantizeTile(Value micropanel, Value k) const;
  /// `prefetches`: words some lines ahead.
  void stageWord(const Destination &to, const Scales &scales, Value part,
                 Value i, bool prefetches);
  Value groupOf(Value part) const;
  Scales loadScales(Value micropanel, Value group, int64_t terms) const;
  /// Of column k of the matrix, in super-blocks.
  Scales loadSuperScales(Value micropanel, Value k, int64_t terms) const;
  /// f32 [terms, columns] of words of 16 columns, before they are scaled.
  Value expandWords(ArrayRef<Value> words) const;
  /// q × scale, (q - zero) × scale, or q × scale - minimum, in f32.
  Value scaleWeights(Value q, const Scales &scales) const;

  QuantWeights weights;
  const QuantizedLayout &layout;
  const SuperBlockWeights superBlocks; ///< used if the layout has them
  std::optional<Nf4Scales> absmax;
};
} // namespace

void QuantColumns::allocateScales() {
  if (!layout.nf4())
    return;
  absmax.emplace(weights);
  absmax->allocate();
}

// All panels of the chunk, one micropanel after another; only the first one if
// the others are interleaved later.
void QuantColumns::stagePanels() {
  Value parts =
      select(block.isLastOfSum, partsOf(block.lastChunk(), kQuantBlock),
             partsOf(tiles.chunk, kQuantBlock));
  auto stage = [&](Value panel, int64_t columns) {
    for (int64_t column = 0; column < columns; column += kMicropanel) {
      Value micropanel =
          block.micropanelOf(add(mul(panel, tiles.width), index(column)));
      if (absmax)
        absmax->stage(micropanel);
      forEach(parts, [&](Value part) {
        Scales scales;
        if (!layout.superBlocks)
          scales = loadScales(micropanel, groupOf(part), layout.perWord());
        forEach(kQuantBlock / layout.perWord(), [&](Value i) {
          stageWord({micropanel, panel, index(column)}, scales, part, i,
                    /*prefetches=*/false);
        });
      });
    }
  };
  if (tiles.interleaves)
    stage(index(0), PackedRows::kTile);
  else
    block.forEachPanel(stage);
}

// Micropanels are terms of the sum here. One after another, all columns of the
// block, so that memory is read in runs.
void QuantColumns::stageRowSums() {
  Value before = div(block.sumStart, kMicropanel);
  Value micropanels =
      select(block.isLastOfSum, partsOf(block.lastChunk(), kMicropanel),
             partsOf(tiles.chunk, kMicropanel));
  forEach(micropanels, [&](Value i) {
    Value micropanel = add(before, i);
    if (block.groupMicropanel)
      micropanel = add(micropanel, block.groupMicropanel);
    if (absmax)
      absmax->stage(micropanel);
    block.forEachPanel([&](Value panel, int64_t columns) {
      for (int64_t at = 0; at < columns; at += kMicropanel)
        stageTile(micropanel, mul(i, kMicropanel), panel, at);
    });
  });
}

// f32 [columns, rows of a micropanel], for 16 columns of the matrix.
Value QuantColumns::dequantizeTile(Value micropanel, Value k) const {
  Value at = div(k, layout.perWord());
  SmallVector<Value> loaded;
  for (int64_t i = 0; i < kMicropanel / layout.perWord(); ++i)
    loaded.push_back(
        weights.loadWord(weights.words, micropanel, add(at, index(i))));
  Value group = div(k, layout.group), q = expandWords(loaded);
  return scaleWeights(q, loadScales(micropanel, group, kMicropanel));
}

// 16 columns from `column` of a panel on, for the 16 terms of a micropanel from
// `depth` of the chunk on: dequantized with rows in lanes, and transposed.
void QuantColumns::stageTile(Value micropanel, Value depth, Value panel,
                             int64_t column) {
  Value k = block.matrixColumn(add(mul(panel, tiles.width), index(column)));
  Value value =
      layout.superBlocks
          ? scaleWeights(superBlocks.loadIntegers(micropanel, k, kMicropanel),
                         loadSuperScales(micropanel, k, kMicropanel))
          : dequantizeTile(micropanel, k);
  auto type = cast<VectorType>(value.getType());
  value = b.create<tile::TransposeOp>(loc, type, value);
  if (tiles.compute != b.getF32Type())
    value = b.create<arith::TruncFOp>(loc, type.clone(tiles.compute), value);
  store(value, copy, {panel, depth, index(column)}, {1, 2});
}

// A word of 16 columns in each iteration.
void QuantColumns::stageNext(Value panel, Value blocks) {
  constexpr int64_t kPanel = PackedRows::kTile;
  int64_t count = kQuantBlock / layout.perWord();
  Value words = mul(blocks, count),
        iterations = mul(words, kPanel / kMicropanel);
  Value zero = index(0), one = index(1), next = add(panel, one);
  Value isThere = compare(arith::CmpIPredicate::ult, next,
                          index(plan.blockColumns / kPanel));
  Value slot = slotOf(next);
  auto loop = b.create<scf::ForOp>(loc, zero, iterations, one);
  loop->setAttr(tile::kInterleaveAttr, b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  ifElse(isThere, [&] {
    Value iteration = loop.getInductionVar();
    Value column =
        mul(b.createOrFold<arith::DivUIOp>(loc, iteration, words), kMicropanel);
    Value word = b.createOrFold<arith::RemUIOp>(loc, iteration, words);
    Value part = div(word, count);
    Value micropanel = block.micropanelOf(add(mul(next, kPanel), column));
    Scales scales;
    if (!layout.superBlocks)
      scales = loadScales(micropanel, groupOf(part), layout.perWord());
    stageWord({micropanel, slot, column}, scales, part, rem(word, count),
              /*prefetches=*/true);
  });
}

// Of a block of the chunk.
Value QuantColumns::groupOf(Value part) const {
  return div(add(block.sumStart, mul(part, kQuantBlock)), layout.group);
}

// As f32 [terms, columns of a micropanel].
QuantColumns::Scales QuantColumns::loadScales(Value micropanel, Value group,
                                              int64_t terms) const {
  auto wide = VectorType::get({terms, kMicropanel}, b.getF32Type());
  auto spread = [&](Value x) -> Value {
    return b.create<tile::BroadcastOp>(loc, wide, x, ArrayRef<int64_t>{1});
  };
  Value scale = spread(absmax ? absmax->load(group)
                              : weights.loadScale(micropanel, group));
  return {scale,
          layout.zeros ? spread(weights.loadZero(micropanel, group)) : Value(),
          Value()};
}

QuantColumns::Scales QuantColumns::loadSuperScales(Value micropanel, Value k,
                                                   int64_t terms) const {
  auto wide = VectorType::get({terms, kMicropanel}, b.getF32Type());
  auto spread = [&](Value x) -> Value {
    return b.create<tile::BroadcastOp>(loc, wide, x, ArrayRef<int64_t>{1});
  };
  return {spread(superBlocks.loadScale(micropanel, k)), Value(),
          layout.minima() ? spread(superBlocks.loadMinimum(micropanel, k))
                          : Value()};
}

Value QuantColumns::expandWords(ArrayRef<Value> loaded) const {
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
  Value word = weights.spreadWords(loaded);
  if (layout.bits == 8) {
    word = b.create<arith::ShLIOp>(
        loc, word, perRow([](int64_t at) { return 24 - 8 * at; }));
    return extendUpperBytes(b, loc, layout, word);
  }
  word = b.create<arith::ShRUIOp>(loc, word,
                                  perRow([](int64_t at) { return 4 * at; }));
  if (layout.nf4())
    return b.create<tile::LookupOp>(loc, wide, word, kNormalFloats);
  if (layout.mxfp4())
    return b.create<tile::LookupOp>(loc, wide, word, kMxfp4Numbers);
  word = b.create<arith::AndIOp>(loc, word, perRow([](int64_t) { return 15; }));
  word = b.create<arith::SubIOp>(
      loc, word, perRow([&](int64_t) { return layout.offset(); }));
  return b.create<arith::SIToFPOp>(loc, wide, word);
}

Value QuantColumns::scaleWeights(Value q, const Scales &scales) const {
  if (scales.zeros)
    q = b.create<arith::SubFOp>(loc, q, scales.zeros);
  Value value = b.create<arith::MulFOp>(loc, q, scales.scale);
  // Two operations: each weight is what a file's reference computes.
  if (scales.minima)
    value = b.create<arith::SubFOp>(loc, value, scales.minima);
  return value;
}

// Word `i` of a block of the chunk.
void QuantColumns::stageWord(const Destination &to, const Scales &scales,
                             Value part, Value i, bool prefetches) {
  int64_t perWord = layout.perWord();
  Value start = mul(part, kQuantBlock);
  Value place =
      layout.superBlocks
          ? add(mul(div(add(block.sumStart, start), kQuantBlock), layout.bits),
                i)
          : add(div(add(block.sumStart, start), perWord), i);
  if (prefetches)
    ContractionOps::prefetch(
        weights.words,
        {to.micropanel, add(place, index(kPrefetchDistance)), index(0)},
        /*locality=*/2);
  Value value;
  if (layout.superBlocks) {
    Value k = add(add(block.sumStart, start), mul(i, perWord));
    value = scaleWeights(superBlocks.loadIntegers(to.micropanel, k, perWord),
                         loadSuperScales(to.micropanel, k, perWord));
  } else {
    value = scaleWeights(
        expandWords(weights.loadWord(weights.words, to.micropanel, place)),
        scales);
  }
  if (tiles.compute != b.getF32Type())
    value = b.create<arith::TruncFOp>(
        loc, cast<VectorType>(value.getType()).clone(tiles.compute), value);
  Value at = add(mul(part, kQuantBlock), mul(i, perWord));
  store(value, copy, {to.slot, at, to.column}, {1, 2});
}

std::unique_ptr<ColumnSource> tessera::quantColumns(ContractionBlock &block) {
  return std::make_unique<QuantColumns>(block);
}
