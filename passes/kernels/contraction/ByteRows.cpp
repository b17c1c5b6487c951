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
// × dmin × minimum, or × d × scale × 32.
//
// vpdpbusd adds products in 32 bits. AVX2 has vpmaddubsw, which adds two
// products in 16 bits: so many of them are added there as 16 bits can hold,
// then vpmaddwd multiplies the sums by their scale.
#include "dialects/tile/TileQuantOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEngine.h"
#include "passes/kernels/contraction/QuantWeights.h"
#include "runtime/support/SuperBlocks.h"

using namespace mlir;
using namespace tessera;

// Columns of the matrix that are staged at a time: 32 KiB of bytes.
static constexpr int64_t kChunk = 2048;
// Words whose products are added without a loop, so that the sums of a
// super-block stay in registers.
static constexpr int64_t kUnrolled = 2;
static constexpr int64_t kSuper = QuantizedLayout::kSuperBlock;
static constexpr int64_t kBlocks = kSuper / kQuantBlock;

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
        layout(weights.layout), superBlocks(weights),
        packed(integerRows(plan)) {}
  void allocate() override;
  void emit() override;

private:
  /// Rows of a register tile, and the first of them.
  struct Rows {
    Value first; ///< of the block
    int64_t count;
  };
  int64_t partsOfSuper() const { return kSuper / layout.scaleColumns(); }
  int64_t wordsOfPart() const { return layout.scaleColumns() / 4; }
  int64_t chunkSupers() const {
    return std::min(kChunk, layout.columns) / kSuper;
  }
  VectorType lanes(Type element) const {
    return VectorType::get({1, kMicropanel}, element);
  }

  void stageSuper(Value micropanel, Value super, Value slot);
  void stageBlock(Value micropanel, Value super, Value slot, int64_t at);
  void stageScale(Value part, Value word, int64_t at, Value d, Value dmin);
  void storeLanes(Value value, Value memory, Value at) {
    store(value, memory, {at, index(0)}, {1});
  }
  Value number(Type type, uint32_t value) const;

  void multiplyChunk(const Rows &rows, Value firstSuper, Value supers);
  Value takeMinima(const Rows &rows, Value firstPart, Value parts, Value sum);
  Value dotSuper(const Rows &rows, Value super, Value slot);
  Value addWords(const Rows &rows, Value word, Value slotWord, int64_t count,
                 bool pairs);
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
  Value memory, first; ///< of the packed rows: all, the block's first
  Value bytes;         ///< i32 [words of a chunk, 16]: unsigned q
  Value scales;        ///< i32 [parts of a chunk, 16]
  Value minima;        ///< f32 [parts of a chunk, 16]
  Value steps;         ///< f32 [super-blocks of a chunk, 16]: d
  Value sums;          ///< f32 [rows of the block, 16]
};
} // namespace

void ByteRows::allocate() {
  const int64_t supers = chunkSupers(), parts = supers * partsOfSuper();
  bytes = block.allocate({supers * kSuper / 4, kMicropanel}, b.getI32Type());
  scales = block.allocate({parts, kMicropanel}, b.getI32Type());
  minima = block.allocate({parts, kMicropanel}, b.getF32Type());
  steps = block.allocate({supers, kMicropanel}, b.getF32Type());
  sums = block.allocate({plan.blockRows, kMicropanel}, b.getF32Type());
}

void ByteRows::emit() {
  memory = emitView(b, loc, block.kernel.getBuffers()[0], packed.view());
  first = block.firstIntegerRow();
  block.groupStart = index(0);
  const int64_t supers = layout.columns / kSuper, atOnce = chunkSupers();
  block.forEachPanel([&](Value panel, int64_t columns) {
    Value micropanel = block.micropanelOf(mul(panel, kMicropanel));
    forRange(index(0), index(supers), atOnce, [&](Value begin) {
      Value count = supers % atOnce
                        ? min(sub(index(supers), begin), index(atOnce))
                        : index(atOnce);
      forEach(count, [&](Value slot) {
        stageSuper(micropanel, add(begin, slot), slot);
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
// rows have them.
void ByteRows::stageBlock(Value micropanel, Value super, Value slot,
                          int64_t at) {
  Value from = mul(add(mul(super, kBlocks), index(at)), layout.bits),
        to = add(mul(slot, kSuper / 4), index(at * IntegerRows::kWords));
  SmallVector<Value> words;
  for (int64_t i = 0; i < layout.bits; ++i)
    words.push_back(
        weights.loadWord(weights.words, micropanel, add(from, index(i))));
  const int64_t ofPart = layout.scaleColumns() / 8;
  for (int64_t i = 0; i < kLowWords; ++i)
    for (int64_t odd = 0; odd < 2; ++odd) {
      const int64_t word = i / ofPart * 2 * ofPart + odd * ofPart + i % ofPart;
      storeLanes(superBlocks.bytesOf(words, i, odd), bytes,
                 add(to, index(word)));
    }
}

// Scale number `at` of the word. As two integers of 16 bits, or as one of 32.
void ByteRows::stageScale(Value part, Value word, int64_t at, Value d,
                          Value dmin) {
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
  if (!target.byteDot) {
    Value low = b.create<arith::AndIOp>(loc, scale, number(type, 0xffff));
    scale = b.create<arith::OrIOp>(
        loc, low, b.create<arith::ShLIOp>(loc, scale, number(type, 16)));
  }
  storeLanes(scale, scales, part);
}

void ByteRows::stageSuper(Value micropanel, Value super, Value slot) {
  for (int64_t i = 0; i < kBlocks; ++i)
    stageBlock(micropanel, super, slot, i);
  Value d = superBlocks.loadD(micropanel, super), dmin;
  if (layout.minima())
    dmin = superBlocks.loadDmin(micropanel, super);
  storeLanes(d, steps, slot);
  const int64_t parts = partsOfSuper();
  Value before = mul(slot, parts);
  for (int64_t at = 0; at < parts; at += 4) {
    Value word = superBlocks.loadBytes(micropanel, super, index(at / 4));
    for (int64_t i = 0; i < 4; ++i)
      stageScale(add(before, index(at + i)), word, i, d, dmin);
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
                         int64_t count, bool pairs) {
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

// i32 [rows, 16]: the sums of the integer products of a super-block.
Value ByteRows::dotSuper(const Rows &rows, Value super, Value slot) {
  VectorType type = tileOf(rows, b.getI32Type());
  const bool pairs = !target.byteDot;
  const int64_t ofPart = wordsOfPart(),
                atOnce =
                    pairs ? std::min(wordsOfPairs(layout), ofPart) : ofPart;
  auto addPart = [&](Value i, ValueRange so) -> Values {
    Value word = mul(i, atOnce);
    Value products = addWords(rows, add(mul(super, kSuper / 4), word),
                              add(mul(slot, kSuper / 4), word), atOnce, pairs);
    Value part = add(mul(slot, partsOfSuper()), div(i, ofPart / atOnce));
    Value scale = spreadColumns(scales, part, b.getI32Type(), rows);
    if (pairs)
      return {b.create<tile::DotPairsOp>(loc, type, products, scale, so[0])};
    return {b.create<arith::AddIOp>(
        loc, so[0], b.create<arith::MulIOp>(loc, products, scale))};
  };
  return forRange(index(0), index(kSuper / 4 / atOnce), 1, zeros(type),
                  addPart)[0];
}

Value ByteRows::spreadRows(Value x, const Rows &rows) const {
  return b.create<tile::BroadcastOp>(loc, tileOf(rows, b.getF32Type()), x,
                                     ArrayRef<int64_t>{0});
}

// Super-blocks [firstSuper, firstSuper + supers), which are staged.
void ByteRows::multiplyChunk(const Rows &rows, Value firstSuper, Value supers) {
  VectorType type = tileOf(rows, b.getF32Type());
  SmallVector<Value> at{rows.first, index(0)};
  Value isFirst = isEqual(firstSuper, 0);
  Value sum = chooseValue(
      isFirst, type, [&] { return zeros(type); },
      [&] { return load(type, sums, at, {0, 1}); });
  sum = takeMinima(rows, mul(firstSuper, partsOfSuper()),
                   mul(supers, partsOfSuper()), sum);
  store(sum, sums, at, {0, 1});
  forEach(supers, [&](Value slot) {
    Value super = add(firstSuper, slot);
    Value product =
        b.create<arith::SIToFPOp>(loc, type, dotSuper(rows, super, slot));
    product = b.create<arith::MulFOp>(
        loc, product, spreadColumns(steps, slot, b.getF32Type(), rows));
    Value bits =
        load(VectorType::get({rows.count}, b.getI32Type()), memory,
             {add(first, rows.first), add(index(packed.scales()), super)}, {0});
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
