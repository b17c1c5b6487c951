// Weights of bf16 in the packed layout: micropanels of 16 rows, with pairs
// along the sum interleaved (VNNI; runtime/support/QuantizedLayout.h). This is
// the form in which other columns are staged, and each 16 columns are one run
// of memory. Matrix registers read them in place, and so do few rows; for many
// rows in vector registers a block's columns are extended once. Terms are added
// in the order of other weights.
#include "passes/kernels/contraction/ColumnSource.h"
#include "passes/kernels/contraction/QuantWeights.h"

using namespace mlir;
using namespace tessera;

namespace {
class MicropanelColumns : public ColumnSource {
public:
  explicit MicropanelColumns(ContractionBlock &block);
  void stage() override;
  Panel panelInPlace(Value panel) override {
    Value first = block.micropanelOf(mul(panel, tiles.width));
    return {memory, {first, block.sumStart, index(0)}};
  }
  Value loadInPlace(const TilePlace &place, Value column, Value k,
                    int64_t steps) override;

private:
  void prefetchMicropanel(Value micropanel, Value k);
  Value loadMicropanel(Value micropanel, Value k, int64_t columns,
                       int64_t steps);

  Value memory; ///< [micropanels, k, 16] in pairs
};
} // namespace

MicropanelColumns::MicropanelColumns(ContractionBlock &block)
    : ColumnSource(block) {
  const QuantizedLayout &layout = plan.quant->layout;
  Value view = micropanelView(block, plan.rhs.argument,
                              layout.words() * layout.perWord());
  auto type = cast<MemRefType>(view.getType());
  auto pairs = tile::SharedAttr::get(b.getContext(), tile::Layout::pairs);
  memory = b.create<memref::MemorySpaceCastOp>(
      loc,
      MemRefType::get(type.getShape(), type.getElementType(), type.getLayout(),
                      pairs),
      view);
}

Value MicropanelColumns::loadInPlace(const TilePlace &place, Value, Value k,
                                     int64_t steps) {
  Value column = mul(place.panel, tiles.width);
  k = add(block.sumStart, k);
  Value micropanel = block.micropanelOf(column);
  if (plan.streamsMicropanels() && steps == tiles.kStep)
    prefetchMicropanel(micropanel, k);
  return loadMicropanel(micropanel, k, place.columns, steps);
}

// [steps, columns] from term k of the sum on, upcast if the arithmetic is f32.
Value MicropanelColumns::loadMicropanel(Value micropanel, Value k,
                                        int64_t columns, int64_t steps) {
  auto type = VectorType::get({steps, columns}, b.getBF16Type());
  Value loaded =
      ContractionOps::load(type, memory, {micropanel, k, index(0)}, {1, 2});
  return tiles.compute.isBF16()
             ? loaded
             : b.create<arith::ExtFOp>(loc, type.clone(tiles.compute), loaded);
}

// Prefetches lines some iterations ahead. The next micropanel begins at a
// micropanel's end.
void MicropanelColumns::prefetchMicropanel(Value micropanel, Value k) {
  constexpr int64_t kNear = 2048, kLine = 4 * kMicropanel;
  for (int64_t step = 0; step < tiles.kStep; step += 2)
    for (auto [bytes, locality] : prefetchDistances(target, kNear))
      ContractionOps::prefetch(
          memory,
          {micropanel, add(k, index(step + bytes / kLine * 2)), index(0)},
          locality);
}

void MicropanelColumns::stage() {
  Value pairs = select(block.isLastOfSum, partsOf(block.lastChunk(), 2),
                       partsOf(tiles.chunk, 2));
  block.forEachPanel([&](Value panel, int64_t columns) {
    for (int64_t column = 0; column < columns; column += kMicropanel) {
      Value first = add(mul(panel, tiles.width), index(column));
      forEach(pairs, [&](Value pair) {
        Value k = mul(pair, 2), from = add(block.sumStart, k);
        Value loaded =
            loadMicropanel(block.micropanelOf(first), from, kMicropanel, 2);
        store(loaded, copy, {panel, k, index(column)}, {1, 2});
      });
    }
  });
}

std::unique_ptr<ColumnSource>
tessera::micropanelColumns(ContractionBlock &block) {
  return std::make_unique<MicropanelColumns>(block);
}
