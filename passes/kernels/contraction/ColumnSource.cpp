#include "passes/kernels/contraction/ColumnSource.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/StridedOperand.h"

using namespace mlir;
using namespace tessera;

// Panels that are staged at once if dequantization is interleaved with
// products.
static constexpr int64_t kInterleavedPanels = 2;
// Steps of all panels that are staged before the next ones; even, for pairs.
static constexpr int64_t kSlab = 16;

void ColumnSource::allocate() {
  if (!tiles.stagesColumns)
    return;
  int64_t panels = partsOf(plan.blockColumns, tiles.width),
          depth = llvm::alignTo(tiles.chunk, 2), columns = tiles.width;
  if (tiles.matrices) {
    depth = llvm::alignTo(tiles.chunk, PackedRows::kTerms);
  } else if (plan.quant) { // whole blocks of whole micropanels
    depth = llvm::alignTo(tiles.chunk, kQuantBlock);
    columns = llvm::alignTo(columns, kMicropanel);
  }
  copy = block.allocate(
      {tiles.interleaves ? kInterleavedPanels : panels, depth, columns},
      tiles.compute, tiles.pairs ? tile::Layout::pairs : tile::Layout::rows);
}

Value ColumnSource::load(const TilePlace &place, Value column, Value k,
                         int64_t steps) {
  if (!tiles.stagesColumns)
    return loadInPlace(place, column, k, steps);
  auto type = VectorType::get({steps, place.columns}, tiles.compute);
  return ContractionOps::load(type, copy, {place.panel, k, column}, {1, 2});
}

Value ColumnSource::slotOf(Value panel) const {
  return tiles.interleaves ? rem(panel, kInterleavedPanels) : panel;
}

namespace {
class StridedColumns : public ColumnSource {
public:
  explicit StridedColumns(ContractionBlock &block)
      : ColumnSource(block), operand(block, /*isLeft=*/false) {}
  void stage() override;
  void prefetch(Value column, Value k) override;
  Panel panelInPlace(Value panel) override;
  Value loadInPlace(const TilePlace &place, Value column, Value k,
                    int64_t steps) override {
    return operand.loadInPlace(column, k, place.columns, steps);
  }

private:
  StridedOperand operand;
};
} // namespace

// If memory is contiguous along the columns, few steps of all panels before the
// next ones, so that its lines are read one after another.
void StridedColumns::stage() {
  bool alongColumns = plan.columnDim().rhs == 1 && plan.sum.rhs != 1;
  int64_t steps = alongColumns ? kSlab : tiles.chunk;
  block.forEachStep(steps, [&](Value k, int64_t depth) {
    block.forEachPanel([&](Value panel, int64_t columns) {
      operand.stage({copy, panel, block.firstColumn(panel), k, columns, depth});
    });
  });
}

// Some iterations ahead; after the end of the columns, the beginning of the
// next ones. A prefetch outside the operand has no effect.
void StridedColumns::prefetch(Value column, Value k) {
  constexpr int64_t kPrefetchDistance = 512;
  int64_t size = plan.sum.size;
  int64_t bytes = plan.rhs.memory.getIntOrFloatBitWidth() / 8;
  int64_t distance =
      std::min(kPrefetchDistance / bytes, size / tiles.kStep * tiles.kStep);
  Value next = add(add(block.sumStart, k), index(distance));
  Value wraps = compare(arith::CmpIPredicate::uge, next, index(size));
  next = b.create<arith::SelectOp>(
      loc, wraps, b.create<arith::SubIOp>(loc, next, index(size)), next);
  column = add(column, select(wraps, tiles.width, 0));
  for (int64_t i = 0; i < tiles.width; ++i)
    ContractionOps::prefetch(operand.memory,
                             operand.indicesOf(add(column, index(i)), next));
}

ColumnSource::Panel StridedColumns::panelInPlace(Value panel) {
  return {operand.memory,
          operand.indicesOf(block.firstColumn(panel), block.sumStart)};
}

std::unique_ptr<ColumnSource> tessera::stridedColumns(ContractionBlock &block) {
  return std::make_unique<StridedColumns>(block);
}

std::unique_ptr<ColumnSource> tessera::columnsOf(ContractionBlock &block) {
  if (block.plan.isMicropanels())
    return micropanelColumns(block);
  return block.plan.quant ? quantColumns(block) : stridedColumns(block);
}
