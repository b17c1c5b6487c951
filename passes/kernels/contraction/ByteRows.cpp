// Many rows × quantized weights as products of bytes: rows from the launch
// byte_rows, as llama.cpp has activations in q8_K.
//
// A block stages one micropanel after another, a chunk of the sum at a time:
// the q of 16 columns as unsigned bytes, their integer scales, and d. All rows
// of the block are multiplied by it, a register tile at a time. The products of
// a row and a super-block are
//
//   scale of the row × d × Σ scale × Σ byte × q
//
// with both sums exact in 32 bits, so that they do not depend on the
// instruction: below 127 × 256 × 63 × 128 in magnitude. What has to be
// subtracted, minima or the offset of q, is a product of floats: the rows' sums
// × dmin × minimum, or × d × scale × 32. Groups of int4 and int8 have no
// integer scales: a row has one scale for a group, whose sum is below 127 × 255
// × 2048.
//
// vpdpbusd adds products in 32 bits. AVX2 has vpmaddubsw, which adds two
// products in 16 bits: so many of them are added there as 16 bits can hold,
// then vpmaddwd multiplies the sums by their scale. Weights of 8 bits fill
// their bytes, and are extended to 16 bits before (tile.mma without `pairs`).
#include "dialects/tile/TileQuantOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEngine.h"
#include "passes/kernels/contraction/QuantWeights.h"
#include "runtime/support/SuperBlocks.h"

using namespace mlir;
using namespace tessera;

// Of columns that are staged at a time: 32 KiB of bytes.
static constexpr int64_t kChunk = IntegerRows::kByteChunk;
// Words whose products are added without a loop, so that the sums of a
// super-block stay in registers.
static constexpr int64_t kUnrolled = 2;

// Words of weights whose products with bytes up to 127 add up to less than 2^15
// in pairs: 15 × 127 × 2 × 8 = 30480, 31 × 127 × 2 × 4 = 31496 and
// 63 × 127 × 2 × 2 = 32004.
static int64_t wordsOfPairs(const QuantizedLayout &layout) {
  return layout.bits == 4 ? 8 : layout.bits == 5 ? 4 : 2;
}

namespace {
class ByteRows : public ContractionEngine {
public:
  ByteRows(ContractionBlock &block, ContractionEpilogue &epilogue)
      : ContractionEngine(block, epilogue), weights(block),
        layout(weights.layout), superBlocks(weights), packed(integerRows(plan)),
        pairs(!target.byteDot && layout.bits != 8) {}
  void allocate() override;
  void emit() override;

private:
  /// Rows of a register tile, and the first of them.
  struct Rows {
    Value first; ///< of the block
    int64_t count;
  };
  /// Of a group: a super-block is one too.
  int64_t partsOfGroup() const { return layout.group / partColumns(); }
  int64_t partColumns() const { return IntegerRows::bytePart(layout); }
  int64_t groupsOfChunk() const {
    return std::min(kChunk, layout.columns) / layout.group;
  }
  VectorType lanes(Type element) const {
    return VectorType::get({1, kMicropanel}, element);
  }

  void stageGroup(Value micropanel, Value group, Value slot);
  void stageSuper(Value micropanel, Value super, Value slot);
  void stageBlock(Value micropanel, Value block, Value slotBlock);
  void stageScale(Value part, Value word, int64_t at, Value d);
  void storeLanes(Value value, Value memory, Value at) {
    store(value, memory, {at, index(0)}, {1});
  }
  Value number(Type type, uint32_t value) const;

  void multiplyChunk(const Rows &rows, Value firstGroup, Value groups);
  Value takeMinima(const Rows &rows, Value firstPart, Value parts, Value sum);
  Value dotGroup(const Rows &rows, Value group, Value slot);
  Value dotWholeGroup(const Rows &rows, Value word, Value slotWord);
  Value addWords(const Rows &rows, Value word, Value slotWord, int64_t count);
  Value loadRow(const Rows &rows, Value at, Type element) const;
  Value spreadRows(Value x, const Rows &rows) const;
  Value spreadColumns(Value memory, Value at, Type element,
                      const Rows &rows) const;
  VectorType tileOf(const Rows &rows, Type element) const {
    return VectorType::get({rows.count, kMicropanel}, element);
  }

  QuantWeights weights;
  const QuantizedLayout &layout;
  const SuperBlockWeights superBlocks;
  IntegerRows packed;
  const bool pairs;    ///< whether products are added in 16 bits first
  Value memory, first; ///< of the packed rows: all, the block's first
  Value bytes;         ///< i32 [words of a chunk, 16]: unsigned q
  Value scales;        ///< i32 [parts of a chunk, 16], of super-blocks
  Value minima;        ///< f32 [parts of a chunk, 16]
  Value steps;         ///< f32 [groups of a chunk, 16]: scales, or d
  Value sums;          ///< f32 [rows of the block, 16]
};
} // namespace

void ByteRows::allocate() {
  const int64_t groups = groupsOfChunk(), parts = groups * partsOfGroup();
  bytes =
      block.allocate({groups * layout.group / 4, kMicropanel}, b.getI32Type());
  if (layout.superBlocks)
    scales = block.allocate({parts, kMicropanel}, b.getI32Type());
  minima = block.allocate({parts, kMicropanel}, b.getF32Type());
  steps = block.allocate({groups, kMicropanel}, b.getF32Type());
  sums = block.allocate({plan.blockRows, kMicropanel}, b.getF32Type());
}

void ByteRows::emit() {
  memory = emitView(b, loc, block.kernel.getBuffers()[0], packed.view());
  first = block.firstIntegerRow();
  block.groupStart = index(0);
  const int64_t groups = layout.groups(), atOnce = groupsOfChunk();
  block.forEachPanel([&](Value panel, int64_t columns) {
    Value micropanel = block.micropanelOf(mul(panel, kMicropanel));
    forRange(index(0), index(groups), atOnce, [&](Value begin) {
      Value count = groups % atOnce
                        ? min(sub(index(groups), begin), index(atOnce))
                        : index(atOnce);
      forEach(count, [&](Value slot) {
        stageGroup(micropanel, add(begin, slot), slot);
      });
      forEachRowTile(block, [&](Value row, int64_t height) {
        multiplyChunk({row, height}, begin, count);
      });
    });
    forEachRowTile(block, [&](Value row, int64_t height) {
      auto type = VectorType::get({height, columns}, b.getF32Type());
      epilogue.emit({height, columns, row, panel},
                    load(type, sums, {row, index(0)}, {0, 1}));
    });
  });
}

//===--- staging ----------------------------------------------------------===//

Value ByteRows::number(Type type, uint32_t value) const {
  return b.create<arith::ConstantOp>(
      loc,
      DenseElementsAttr::get(cast<VectorType>(type), llvm::APInt(32, value)));
}

// Words of a part are those of its even columns, then of the odd ones, as the
// rows have them; with 8 bits those of four columns.
void ByteRows::stageBlock(Value micropanel, Value block, Value slotBlock) {
  Value from = mul(block, layout.bits),
        to = mul(slotBlock, IntegerRows::kWords);
  SmallVector<Value> words;
  for (int64_t i = 0; i < layout.bits; ++i)
    words.push_back(
        weights.loadWord(weights.words, micropanel, add(from, index(i))));
  if (layout.bits == 8) {
    for (auto [i, word] : llvm::enumerate(words))
      storeLanes(b.create<arith::XOrIOp>(loc, word,
                                         number(word.getType(), 0x80808080)),
                 bytes, add(to, index(i)));
    return;
  }
  const int64_t ofPart = partColumns() / 8;
  for (int64_t i = 0; i < kLowWords; ++i)
    for (int64_t odd = 0; odd < 2; ++odd) {
      const int64_t word = i / ofPart * 2 * ofPart + odd * ofPart + i % ofPart;
      storeLanes(superBlocks.bytesOf(words, i, odd), bytes,
                 add(to, index(word)));
    }
}

// Scale number `at` of the word. As two integers of 16 bits, or as one of 32.
void ByteRows::stageScale(Value part, Value word, int64_t at, Value d) {
  Type type = word.getType();
  Value top = number(type, 24),
        scale = b.create<arith::ShLIOp>(loc, word,
                                        number(type, uint32_t(24 - 8 * at)));
  // Those without minima are signed.
  if (layout.minima())
    scale = b.create<arith::ShRUIOp>(loc, scale, top);
  else
    scale = b.create<arith::ShRSIOp>(loc, scale, top);
  if (!layout.minima()) {
    Value value = b.create<arith::SIToFPOp>(
        loc, cast<VectorType>(type).clone(b.getF32Type()), scale);
    value = b.create<arith::MulFOp>(loc, value, d);
    storeLanes(b.create<arith::MulFOp>(
                   loc, value, splat(double(layout.offset()), {kMicropanel})),
               minima, part);
  }
  if (pairs) {
    Value low = b.create<arith::AndIOp>(loc, scale, number(type, 0xffff));
    scale = b.create<arith::OrIOp>(
        loc, low, b.create<arith::ShLIOp>(loc, scale, number(type, 16)));
  }
  storeLanes(scale, scales, part);
}

void ByteRows::stageGroup(Value micropanel, Value group, Value slot) {
  const int64_t blocks = layout.group / kQuantBlock;
  forEach(blocks, [&](Value i) {
    stageBlock(micropanel, add(mul(group, blocks), i),
               add(mul(slot, blocks), i));
  });
  if (layout.superBlocks)
    return stageSuper(micropanel, group, slot);
  Value scale = weights.loadScale(micropanel, group);
  storeLanes(scale, steps, slot);
  Value least = splat(double(IntegerRows::offset(layout)), {kMicropanel});
  if (layout.zeros)
    least = b.create<arith::AddFOp>(loc, least,
                                    weights.loadZero(micropanel, group));
  least = b.create<arith::MulFOp>(loc, least, scale);
  for (int64_t part = 0; part < partsOfGroup(); ++part)
    storeLanes(least, minima, add(mul(slot, partsOfGroup()), index(part)));
}

void ByteRows::stageSuper(Value micropanel, Value super, Value slot) {
  Value d = superBlocks.loadD(micropanel, super), dmin;
  if (layout.minima())
    dmin = superBlocks.loadDmin(micropanel, super);
  storeLanes(d, steps, slot);
  const int64_t parts = partsOfGroup();
  Value before = mul(slot, parts);
  for (int64_t at = 0; at < parts; at += 4) {
    Value word = superBlocks.loadBytes(micropanel, super, index(at / 4));
    for (int64_t i = 0; i < 4; ++i)
      stageScale(add(before, index(at + i)), word, i, d);
  }
  if (!layout.minima())
    return;
  for (int64_t at = 0; at < parts; at += 4) {
    Value word =
        superBlocks.loadBytes(micropanel, super, index((parts + at) / 4));
    for (int64_t i = 0; i < 4; ++i)
      storeLanes(
          b.create<arith::MulFOp>(loc, superBlocks.extendByte(word, i), dmin),
          minima, add(before, index(at + i)));
  }
}

//===--- products ---------------------------------------------------------===//

// [rows, 1], at an index of the packed rows.
Value ByteRows::loadRow(const Rows &rows, Value at, Type element) const {
  Value x = load(VectorType::get({rows.count, 1}, b.getI32Type()), memory,
                 {add(first, rows.first), at}, {0, 1});
  if (element.isInteger())
    return x;
  return b.create<arith::BitcastOp>(
      loc, VectorType::get({rows.count, 1}, element), x);
}

Value ByteRows::spreadColumns(Value from, Value at, Type element,
                              const Rows &rows) const {
  Value x =
      load(VectorType::get({kMicropanel}, element), from, {at, index(0)}, {1});
  return b.create<tile::BroadcastOp>(loc, tileOf(rows, element), x,
                                     ArrayRef<int64_t>{1});
}

// Adds the rows' negated sums × minima.
Value ByteRows::takeMinima(const Rows &rows, Value firstPart, Value parts,
                           Value sum) {
  return forRange(
      index(0), parts, 1, sum, [&](Value part, ValueRange so) -> Values {
        Value at = add(index(packed.sums()), add(firstPart, part));
        Value least =
            load(lanes(b.getF32Type()), minima, {part, index(0)}, {0, 1});
        return {b.create<tile::MmaOp>(loc, loadRow(rows, at, b.getF32Type()),
                                      least, so[0])};
      })[0];
}

// The products of `count` words, the first one at `word` of the rows.
Value ByteRows::addWords(const Rows &rows, Value word, Value slotWord,
                         int64_t count) {
  Type type = b.getI32Type();
  auto addWord = [&](Value i, ValueRange so) -> Values {
    Value q = load(lanes(type), bytes, {add(slotWord, i), index(0)}, {0, 1});
    return {b.create<tile::MmaOp>(loc, loadRow(rows, add(word, i), type), q,
                                  so[0], pairs)};
  };
  Value sum = zeros(tileOf(rows, type));
  if (count > kUnrolled)
    return forRange(index(0), index(count), 1, sum, addWord)[0];
  for (int64_t i = 0; i < count; ++i)
    sum = addWord(index(i), sum)[0];
  return sum;
}

// A group without integer scales.
Value ByteRows::dotWholeGroup(const Rows &rows, Value word, Value slotWord) {
  VectorType type = tileOf(rows, b.getI32Type());
  if (!pairs)
    return addWords(rows, word, slotWord, layout.group / 4);
  const int64_t atOnce = wordsOfPairs(layout),
                count = layout.group / 4 / atOnce;
  Value ones = number(type, 0x00010001);
  auto addPart = [&](Value i, ValueRange so) -> Values {
    Value at = mul(i, atOnce);
    Value products = addWords(rows, add(word, at), add(slotWord, at), atOnce);
    return {b.create<tile::DotPairsOp>(loc, type, products, ones, so[0])};
  };
  if (count == 1)
    return addPart(index(0), zeros(type))[0];
  return forRange(index(0), index(count), 1, zeros(type), addPart)[0];
}

// i32 [rows, 16]: the sums of the integer products of a group.
Value ByteRows::dotGroup(const Rows &rows, Value group, Value slot) {
  VectorType type = tileOf(rows, b.getI32Type());
  const int64_t ofGroup = layout.group / 4, ofPart = partColumns() / 4,
                atOnce =
                    pairs ? std::min(wordsOfPairs(layout), ofPart) : ofPart;
  Value first = mul(group, ofGroup), slotFirst = mul(slot, ofGroup);
  if (!layout.superBlocks)
    return dotWholeGroup(rows, first, slotFirst);
  auto addPart = [&](Value i, ValueRange so) -> Values {
    Value at = mul(i, atOnce);
    Value products = addWords(rows, add(first, at), add(slotFirst, at), atOnce);
    Value part = add(mul(slot, partsOfGroup()), div(i, ofPart / atOnce));
    Value scale = spreadColumns(scales, part, b.getI32Type(), rows);
    if (pairs)
      return {b.create<tile::DotPairsOp>(loc, type, products, scale, so[0])};
    return {b.create<arith::AddIOp>(
        loc, so[0], b.create<arith::MulIOp>(loc, products, scale))};
  };
  return forRange(index(0), index(ofGroup / atOnce), 1, zeros(type),
                  addPart)[0];
}

Value ByteRows::spreadRows(Value x, const Rows &rows) const {
  return b.create<tile::BroadcastOp>(loc, tileOf(rows, b.getF32Type()), x,
                                     ArrayRef<int64_t>{0});
}

// Groups [firstGroup, firstGroup + groups), which are staged.
void ByteRows::multiplyChunk(const Rows &rows, Value firstGroup, Value groups) {
  VectorType type = tileOf(rows, b.getF32Type());
  SmallVector<Value> at{rows.first, index(0)};
  Value isFirst = isEqual(firstGroup, 0);
  Value sum = chooseValue(
      isFirst, type, [&] { return zeros(type); },
      [&] { return load(type, sums, at, {0, 1}); });
  sum = takeMinima(rows, mul(firstGroup, partsOfGroup()),
                   mul(groups, partsOfGroup()), sum);
  store(sum, sums, at, {0, 1});
  forEach(groups, [&](Value slot) {
    Value group = add(firstGroup, slot);
    Value product =
        b.create<arith::SIToFPOp>(loc, type, dotGroup(rows, group, slot));
    product = b.create<arith::MulFOp>(
        loc, product, spreadColumns(steps, slot, b.getF32Type(), rows));
    Value bits =
        load(VectorType::get({rows.count}, b.getI32Type()), memory,
             {add(first, rows.first), add(index(packed.scales()), group)}, {0});
    Value scale = b.create<arith::BitcastOp>(
        loc, VectorType::get({rows.count}, b.getF32Type()), bits);
    Value so = load(type, sums, at, {0, 1});
    store(b.create<math::FmaOp>(loc, product, spreadRows(scale, rows), so),
          sums, at, {0, 1});
  });
}

std::unique_ptr<ContractionEngine>
tessera::byteRows(ContractionBlock &block, ContractionEpilogue &epilogue) {
  return std::make_unique<ByteRows>(block, epilogue);
}
