// Products with weights of bf16 in the packed layout: micropanels of 16 rows,
// with pairs along the sum interleaved (VNNI;
// runtime/support/QuantizedLayout.h). This is the form in which other products
// stage columns, and each 16 columns are one run of memory. Matrix registers
// read them in place, and so do few rows; for many rows in vector registers a
// block's columns are extended once. Terms are added in the order of other
// weights.
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEmit.h"

using namespace mlir;
using namespace tessera;

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
  micropanels = b.create<memref::MemorySpaceCastOp>(
      loc,
      MemRefType::get(type.getShape(), type.getElementType(), type.getLayout(),
                      pairs),
      view);
}

// [steps, columns] from term k of the sum on, upcast if the arithmetic is f32.
Value ContractionEmitter::loadMicropanel(Value column, Value k, int64_t columns,
                                         int64_t steps) {
  auto type = VectorType::get({steps, columns}, b.getBF16Type());
  Value loaded = b.create<tile::LoadOp>(
      loc, type, micropanels, ValueRange{micropanelOf(column), k, index(0)},
      ValueRange(), ArrayRef<int64_t>{1, 2});
  return tiles.compute.isBF16()
             ? loaded
             : b.create<arith::ExtFOp>(loc, type.clone(tiles.compute), loaded);
}

// Prefetches lines some iterations ahead. The next micropanel begins at a
// micropanel's end.
void ContractionEmitter::prefetchMicropanel(Value column, Value k) {
  constexpr int64_t kNear = 2048, kLine = 4 * kMicropanel;
  Value micropanel = micropanelOf(column);
  for (int64_t step = 0; step < tiles.kStep; step += 2)
    for (auto [bytes, locality] : prefetchDistances(kNear))
      b.create<memref::PrefetchOp>(
          loc, micropanels,
          ValueRange{micropanel, add(k, index(step + bytes / kLine * 2)),
                     index(0)},
          /*isWrite=*/false, locality, /*isDataCache=*/true);
}

void ContractionEmitter::stageMicropanelColumns() {
  int64_t last = lastChunk();
  Value pairsHere =
      select(isLastOfSum, partsOf(last, 2), partsOf(tiles.chunk, 2));
  forEachPanel([&](Value panel, int64_t columns) {
    for (int64_t column = 0; column < columns; column += kMicropanel) {
      Value first = add(mul(panel, tiles.width), index(column));
      forEach(pairsHere, [&](Value pair) {
        Value k = mul(pair, 2);
        Value loaded = loadMicropanel(first, add(sumStart, k), kMicropanel, 2);
        b.create<tile::StoreOp>(loc, loaded, columnCopy,
                                ValueRange{panel, k, index(column)},
                                ValueRange(), ArrayRef<int64_t>{1, 2});
      });
    }
  });
}
