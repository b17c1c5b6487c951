// Many rows × quantized weights as products of bytes (ByteProducts.h), with
// rows from the launch byte_rows.
//
// A block stages one micropanel after another, a chunk of the sum at a time:
// the q of 16 columns as unsigned bytes, their integer scales and minima, and d
// and dmin. All rows of the block are multiplied by it, a register tile at a
// time.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ByteProducts.h"
#include "passes/kernels/contraction/ContractionEngine.h"

using namespace mlir;
using namespace tessera;

// Of columns that are staged at a time: 32 KiB of bytes.
static constexpr int64_t kChunk = IntegerRows::kByteChunk;
// Words whose products are added without a loop, so that the sums of a
// super-block stay in registers.
static constexpr int64_t kUnrolled = 2;

namespace {
class ByteRows : public ContractionEngine {
public:
  ByteRows(ContractionBlock &block, ContractionEpilogue &epilogue)
      : ContractionEngine(block, epilogue), weights(block),
        layout(weights.layout), superBlocks(weights), products(weights) {}
  void allocate() override;
  void emit() override;

private:
  using Rows = ByteProducts::Rows;
  /// Of a group: a super-block is one too.
  int64_t partsOfGroup() const {
    return layout.group / IntegerRows::bytePart(layout);
  }
  int64_t groupsOfChunk() const {
    return std::min(kChunk, layout.columns) / layout.group;
  }

  void stageGroup(Value micropanel, Value group, Value slot);
  void stageSuper(Value micropanel, Value super, Value slot);
  void stageBlock(Value micropanel, Value block, Value slotBlock);
  void storeLanes(Value value, Value memory, Value at) {
    store(value, memory, {at, index(0)}, {1});
  }
  /// [16], of a staged one.
  Value loadLanes(Type element, Value memory, Value at) const {
    return load(VectorType::get({kMicropanel}, element), memory, {at, index(0)},
                {1});
  }

  void multiplyChunk(Value row, int64_t count, Value firstGroup, Value groups);
  Value dotGroup(const Rows &rows, Value group, Value slot);
  Value dotSuper(const Rows &rows, Value super, Value slot);
  Value dotMinima(const Rows &rows, Value super, Value slot);
  Value addWords(const Rows &rows, Value word, Value slotWord, int64_t count,
                 Value sum);

  QuantWeights weights;
  const QuantizedLayout &layout;
  const SuperBlockWeights superBlocks;
  const ByteProducts products;
  Value first;   ///< of the packed rows: the block's
  Value bytes;   ///< i32 [words of a chunk, 16]: unsigned q
  Value scales;  ///< i32 [parts of a chunk, 16], of super-blocks
  Value minima;  ///< i32 [half the parts of a chunk, 16]
  Value offsets; ///< i32 [groups of a chunk, 16], of zero points
  Value steps;   ///< f32 [groups of a chunk, 16]: scales, or d
  Value dmins;   ///< f32 [groups of a chunk, 16]
  Value sums;    ///< f32 [rows of the block, 16]
};
} // namespace

void ByteRows::allocate() {
  const int64_t groups = groupsOfChunk(), parts = groups * partsOfGroup();
  auto lanes = [&](int64_t count, Type element) {
    return block.allocate({count, kMicropanel}, element);
  };
  bytes = lanes(groups * layout.group / 4, b.getI32Type());
  if (layout.superBlocks)
    scales = lanes(parts, b.getI32Type());
  if (layout.minima()) {
    minima = lanes(parts / 2, b.getI32Type());
    dmins = lanes(groups, b.getF32Type());
  }
  if (layout.zeros)
    offsets = lanes(groups, b.getI32Type());
  steps = lanes(groups, b.getF32Type());
  sums = lanes(plan.blockRows, b.getF32Type());
}

void ByteRows::emit() {
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
        multiplyChunk(row, height, begin, count);
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

void ByteRows::stageBlock(Value micropanel, Value block, Value slotBlock) {
  Value from = mul(block, layout.bits),
        to = mul(slotBlock, IntegerRows::kWords);
  SmallVector<Value> words;
  for (int64_t i = 0; i < layout.bits; ++i)
    words.push_back(
        weights.loadWord(weights.words, micropanel, add(from, index(i))));
  for (int64_t at = 0; at < IntegerRows::kWords; ++at)
    storeLanes(products.unpack(words, at), bytes, add(to, index(at)));
}

void ByteRows::stageGroup(Value micropanel, Value group, Value slot) {
  const int64_t blocks = layout.group / kQuantBlock;
  forEach(blocks, [&](Value i) {
    stageBlock(micropanel, add(mul(group, blocks), i),
               add(mul(slot, blocks), i));
  });
  if (layout.superBlocks)
    return stageSuper(micropanel, group, slot);
  storeLanes(weights.loadScale(micropanel, group), steps, slot);
  if (layout.zeros)
    storeLanes(weights.loadOffset(micropanel, group), offsets, slot);
}

void ByteRows::stageSuper(Value micropanel, Value super, Value slot) {
  storeLanes(superBlocks.loadD(micropanel, super), steps, slot);
  const int64_t parts = partsOfGroup();
  for (int64_t at = 0; at < parts; at += 4) {
    Value word = superBlocks.loadBytes(micropanel, super, index(at / 4));
    for (int64_t i = 0; i < 4; ++i)
      storeLanes(products.scaleOf(word, i), scales,
                 add(mul(slot, parts), index(at + i)));
  }
  if (!layout.minima())
    return;
  storeLanes(superBlocks.loadDmin(micropanel, super), dmins, slot);
  for (int64_t at = 0; at < parts; at += 4) {
    Value word =
        superBlocks.loadBytes(micropanel, super, index((parts + at) / 4));
    for (int64_t half = 0; half < 2; ++half)
      storeLanes(products.minimaOf(word, half), minima,
                 add(mul(slot, parts / 2), index(at / 2 + half)));
  }
}

//===--- products ---------------------------------------------------------===//

// `sum` and the products of `count` words, the first one at `word` of the rows.
Value ByteRows::addWords(const Rows &rows, Value word, Value slotWord,
                         int64_t count, Value sum) {
  auto addWord = [&](Value i, ValueRange so) -> Values {
    Value q = load(VectorType::get({1, kMicropanel}, b.getI32Type()), bytes,
                   {add(slotWord, i), index(0)}, {0, 1});
    return {products.addWord(rows, add(word, i), q, so[0])};
  };
  if (count > kUnrolled)
    return forRange(index(0), index(count), 1, sum, addWord)[0];
  for (int64_t i = 0; i < count; ++i)
    sum = addWord(index(i), sum)[0];
  return sum;
}

// i32 [rows, 16]: the sums of the integer products of a group.
Value ByteRows::dotGroup(const Rows &rows, Value group, Value slot) {
  const int64_t words = layout.group / 4, atOnce = products.wordsAtOnce();
  Value first = mul(group, words), slotFirst = mul(slot, words);
  Value start = products.startGroup(
      rows, group,
      layout.zeros ? loadLanes(b.getI32Type(), offsets, slot) : Value());
  if (!products.pairs)
    return addWords(rows, first, slotFirst, words, start);
  auto addPart = [&](Value i, ValueRange so) -> Values {
    Value at = mul(i, atOnce);
    Value sum = addWords(rows, add(first, at), add(slotFirst, at), atOnce,
                         zeros(cast<VectorType>(start.getType())));
    return {products.addPart(rows, sum, products.one(), so[0])};
  };
  return forRange(index(0), index(words / atOnce), 1, start, addPart)[0];
}

Value ByteRows::dotSuper(const Rows &rows, Value super, Value slot) {
  const int64_t words = QuantizedLayout::kSuperBlock / 4,
                atOnce = products.wordsAtOnce(),
                ofPart = products.wordsOfPart() / atOnce;
  auto addPart = [&](Value i, ValueRange so) -> Values {
    Value at = mul(i, atOnce), part = div(i, ofPart);
    Value start =
        products.startPart(rows, add(mul(super, partsOfGroup()), part));
    Value sum = addWords(rows, add(mul(super, words), at),
                         add(mul(slot, words), at), atOnce, start);
    Value scale =
        loadLanes(b.getI32Type(), scales, add(mul(slot, partsOfGroup()), part));
    return {products.addPart(rows, sum, scale, so[0])};
  };
  Value none =
      zeros(VectorType::get({rows.count, kMicropanel}, b.getI32Type()));
  return forRange(index(0), index(words / atOnce), 1, none, addPart)[0];
}

Value ByteRows::dotMinima(const Rows &rows, Value super, Value slot) {
  const int64_t fours = partsOfGroup() / 4;
  Value sum = zeros(VectorType::get({rows.count, kMicropanel}, b.getI32Type()));
  for (int64_t four = 0; four < fours; ++four) {
    SmallVector<Value, 2> halves;
    for (int64_t half = 0; half < 2; ++half)
      halves.push_back(
          loadLanes(b.getI32Type(), minima,
                    add(mul(slot, 2 * fours), index(2 * four + half))));
    sum = products.addMinima(rows, add(mul(super, fours), index(four)), halves,
                             sum);
  }
  return sum;
}

// Groups [firstGroup, firstGroup + groups), which are staged.
void ByteRows::multiplyChunk(Value row, int64_t count, Value firstGroup,
                             Value groups) {
  const Rows rows{add(first, row), count};
  auto type = VectorType::get({count, kMicropanel}, b.getF32Type());
  SmallVector<Value> at{row, index(0)};
  ifElse(isEqual(firstGroup, 0), [&] { store(zeros(type), sums, at, {0, 1}); });
  forEach(groups, [&](Value slot) {
    Value group = add(firstGroup, slot);
    ByteProducts::Sums of;
    of.products = layout.superBlocks ? dotSuper(rows, group, slot)
                                     : dotGroup(rows, group, slot);
    of.step = loadLanes(b.getF32Type(), steps, slot);
    if (layout.minima()) {
      of.minima = dotMinima(rows, group, slot);
      of.dmin = loadLanes(b.getF32Type(), dmins, slot);
    }
    store(products.addGroup(rows, group, of, load(type, sums, at, {0, 1})),
          sums, at, {0, 1});
  });
}

std::unique_ptr<ContractionEngine>
tessera::byteRows(ContractionBlock &block, ContractionEpilogue &epilogue) {
  return std::make_unique<ByteRows>(block, epilogue);
}
