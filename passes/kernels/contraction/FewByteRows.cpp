// Few rows × quantized weights as products of bytes (ByteProducts.h), with rows
// from the launch byte_rows: weights are unpacked in registers.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ByteProducts.h"
#include "passes/kernels/contraction/FewRows.h"
#include "runtime/support/SuperBlocks.h"

using namespace mlir;
using namespace tessera;

namespace {
class FewByteRows : public FewRows {
public:
  FewByteRows(ContractionBlock &block, ContractionEpilogue &epilogue)
      : FewRows(block, epilogue), superBlocks(weights), products(weights) {}

private:
  void stageRows() override { first = block.firstIntegerRow(); }
  Value addGroup(Value micropanel, Value group, const Rows &rows, int64_t size,
                 Value sum) override;
  /// One group or super-block; some rows, as ByteProducts has them.
  struct Group {
    Value micropanel, number;
    const Rows &rows;
    ByteProducts::Rows packed;
  };
  Value dotGroup(const Group &group);
  void dotSuper(const Group &super, ByteProducts::Sums &sums);
  Value addBlock(const Group &group, Value block, Value sum);
  Value addScaledBlock(const Group &super, Value block, ArrayRef<Value> scales,
                       Value sum);
  /// i32 [1, 16] of each word of a block, loaded where it is used.
  class Words;

  const SuperBlockWeights superBlocks;
  const ByteProducts products;
  Value first; ///< of the packed rows: the block's
};

class FewByteRows::Words {
public:
  Words(FewByteRows &engine, const Group &group, Value block)
      : engine(engine), group(group), block(block), loaded(engine.layout.bits) {
  }
  /// `sum` and the products of word `at` of the rows.
  Value add(int64_t at, Value sum) {
    for (int64_t i : engine.products.wordsOf(at))
      if (!loaded[i])
        loaded[i] = engine.loadWords(
            group.micropanel,
            engine.add(engine.mul(block, engine.layout.bits), engine.index(i)),
            group.rows);
    return engine.products.addWord(
        group.packed,
        engine.add(engine.mul(block, IntegerRows::kWords), engine.index(at)),
        engine.products.unpack(loaded, at), sum);
  }

private:
  FewByteRows &engine;
  const Group &group;
  Value block; ///< of the matrix
  SmallVector<Value> loaded;
};
} // namespace

//===--- groups of int4 and int8 ------------------------------------------===//

// `sum` and the products of a block.
Value FewByteRows::addBlock(const Group &group, Value block, Value sum) {
  Words words(*this, group, block);
  const bool pairs = products.pairs;
  Value all = pairs ? zeros(cast<VectorType>(sum.getType())) : sum;
  for (int64_t at = 0; at < IntegerRows::kWords; ++at)
    all = words.add(at, all);
  return pairs ? products.addPart(group.packed, all, products.one(), sum) : all;
}

Value FewByteRows::dotGroup(const Group &group) {
  const int64_t blocks = layout.group / kQuantBlock;
  Value offsets;
  if (layout.zeros)
    offsets = weights.loadOffset(group.micropanel, group.number);
  Value start = products.startGroup(group.packed, group.number, offsets);
  Value begin = mul(group.number, blocks);
  if (blocks == 1)
    return addBlock(group, begin, start);
  return forRange(index(0), index(blocks), 1, start,
                  [&](Value i, ValueRange so) -> Values {
                    return {addBlock(group, add(begin, i), so[0])};
                  })[0];
}

//===--- super-blocks -----------------------------------------------------===//

Value FewByteRows::addScaledBlock(const Group &super, Value block,
                                  ArrayRef<Value> scales, Value sum) {
  Words words(*this, super, block);
  const int64_t ofPart = products.wordsOfPart(),
                atOnce = products.wordsAtOnce();
  const auto parts = int64_t(scales.size());
  for (int64_t at = 0; at < IntegerRows::kWords; at += atOnce) {
    Value all = products.startPart(super.packed,
                                   add(mul(block, parts), index(at / ofPart)));
    for (int64_t word = at; word < at + atOnce; ++word)
      all = words.add(word, all);
    sum = products.addPart(super.packed, all, scales[at / ofPart], sum);
  }
  return sum;
}

void FewByteRows::dotSuper(const Group &super, ByteProducts::Sums &sums) {
  constexpr int64_t kFours =
      QuantizedLayout::kSuperBlock / kQuantBlock / kBlocksOfWord;
  const int64_t parts = IntegerRows::kWords / products.wordsOfPart();
  auto scaleWord = [&](Value at) {
    return superBlocks.loadBytes(super.micropanel, super.number, at);
  };
  auto addFour = [&](Value i, ValueRange so) -> Values {
    Value four = add(mul(super.number, kFours), i), all = so[0];
    SmallVector<Value> words;
    for (int64_t at = 0; at < parts; ++at)
      words.push_back(scaleWord(add(mul(i, parts), index(at))));
    for (int64_t at = 0; at < kBlocksOfWord; ++at) {
      SmallVector<Value> scales;
      for (int64_t part = at * parts; part < (at + 1) * parts; ++part)
        scales.push_back(products.scaleOf(words[part / 4], part % 4));
      all = addScaledBlock(super, add(mul(four, kBlocksOfWord), index(at)),
                           scales, all);
    }
    if (!layout.minima())
      return {all};
    Value word = scaleWord(add(i, index(kFours)));
    return {all, products.addMinima(
                     super.packed, four,
                     {products.minimaOf(word, 0), products.minimaOf(word, 1)},
                     so[1])};
  };
  Value none =
      zeros(VectorType::get({super.packed.count, kMicropanel}, b.getI32Type()));
  SmallVector<Value> carried(layout.minima() ? 2 : 1, none);
  ValueRange all = forRange(index(0), index(kFours), 1, carried, addFour);
  sums.products = all[0];
  if (layout.minima())
    sums.minima = all[1];
}

Value FewByteRows::addGroup(Value micropanel, Value group, const Rows &rows,
                            int64_t, Value sum) {
  if (rows.prefetches)
    prefetchScales(micropanel, group);
  const Group of{micropanel, group, rows, {add(first, rows.first), rows.count}};
  ByteProducts::Sums sums;
  if (layout.superBlocks) {
    dotSuper(of, sums);
    sums.step = superBlocks.loadD(micropanel, group);
    if (layout.minima())
      sums.dmin = superBlocks.loadDmin(micropanel, group);
  } else {
    sums.products = dotGroup(of);
    sums.step = weights.loadScale(micropanel, group);
  }
  return products.addGroup(of.packed, group, sums, sum);
}

std::unique_ptr<ContractionEngine>
tessera::fewByteRows(ContractionBlock &block, ContractionEpilogue &epilogue) {
  return std::make_unique<FewByteRows>(block, epilogue);
}
