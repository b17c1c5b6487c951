// Products with weights of bf16 in micropanels of 16 rows, pairs along the sum
// side by side (runtime/support/QuantizedLayout.h): what other products stage
// columns as, and a run of memory for each 16 columns. Matrix registers take
// them as they are, and so do few rows; many rows in other registers widen a
// block's columns once. Terms are added as those of other weights are.
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEmit.h"

using namespace mlir;
using namespace tessera;

static constexpr int64_t kMicropanel = QuantizedLayout::kMicropanel;

void ContractionEmitter::makeMicropanels(Value buffer) {
  const QuantizedLayout &layout = plan.quant->layout;
  int64_t depth = layout.words() * layout.perWord();
  Value view = emitView(b, loc, buffer,
                        {{},
                         0,
                         {layout.micropanels(), depth, kMicropanel},
                         {depth * kMicropanel, kMicropanel, 1}});
  auto type = cast<MemRefType>(view.getType());
  auto pairs = tile::SharedAttr::get(b.getContext(), tile::Layout::pairs);
  rhs.micropanels = b.create<memref::MemorySpaceCastOp>(
      loc,
      MemRefType::get(type.getShape(), type.getElementType(), type.getLayout(),
                      pairs),
      view);
}

// [steps, columns] from term k of the sum on, widened where the arithmetic is.
Value ContractionEmitter::loadMicropanel(Value column, Value k, int64_t columns,
                                         int64_t steps) {
  auto type = VectorType::get({steps, columns}, b.getBF16Type());
  Value loaded = b.create<tile::LoadOp>(
      loc, type, rhs.micropanels, ValueRange{micropanelOf(column), k, index(0)},
      ValueRange(), ArrayRef<int64_t>{1, 2});
  return compute.isBF16()
             ? loaded
             : b.create<arith::ExtFOp>(loc, type.clone(compute), loaded);
}

// Lines that are multiplied some turns from here. Behind a micropanel's end the
// next micropanel begins.
void ContractionEmitter::prefetchMicropanel(Value column, Value k) {
  constexpr int64_t kNear = 2048, kLine = 4 * kMicropanel;
  Value micropanel = micropanelOf(column);
  for (int64_t step = 0; step < kStep; step += 2)
    for (auto [bytes, locality] : distancesAhead(kNear))
      b.create<memref::PrefetchOp>(
          loc, rhs.micropanels,
          ValueRange{micropanel, add(k, index(step + bytes / kLine * 2)),
                     index(0)},
          /*isWrite=*/false, locality, /*isDataCache=*/true);
}

void ContractionEmitter::stageMicropanelColumns() {
  int64_t last = plan.sum.size - (chunksOfSum - 1) * chunk;
  Value pairsHere = select(isLastOfSum, partsOf(last, 2), partsOf(chunk, 2));
  forEachPanel([&](Value panel, int64_t columns) {
    for (int64_t column = 0; column < columns; column += kMicropanel) {
      Value first = add(mul(panel, width), index(column));
      forEach(pairsHere, [&](Value pair) {
        Value k = mul(pair, 2);
        Value loaded = loadMicropanel(first, add(sumStart, k), kMicropanel, 2);
        b.create<tile::StoreOp>(loc, loaded, rhs.shared,
                                ValueRange{panel, k, index(column)},
                                ValueRange(), ArrayRef<int64_t>{1, 2});
      });
    }
  });
}
