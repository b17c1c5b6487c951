// Parameters of a contraction's kernel: element types, register tiles, staging
// and the length of chunks of the sum.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionEmit.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// Register tiles of a group: enough that its rows fill cache lines if they are
// the contiguous dimension.
static constexpr int64_t kGroupTiles = 4;

// A block's staged copies for matrix registers: their processors have 2 MiB of
// L2.
static constexpr int64_t kMatrixBytes = 1280 << 10;

// bf16 is multiplied directly if the target has the instruction; otherwise
// everything below f32 is upcast while staged.
void ContractionEmitter::chooseTypes() {
  accumulate = plan.lhs.element.isF64() ? b.getF64Type() : b.getF32Type();
  auto isBf16 = [](const ContractionOperand &operand) {
    return operand.memory.isBF16() && operand.element.isBF16();
  };
  auto repeats = [](int64_t size, int64_t stride) {
    return size > 1 && stride == 0;
  };
  ContractionDim row = plan.rowDim(), column = plan.columnDim();
  matrices = target.matrixTiles && plan.fitsMatrices();
  pairs = target.bf16Dot && isBf16(plan.lhs) && isBf16(plan.rhs) &&
          !repeats(row.size, row.lhs) && !repeats(column.size, column.rhs) &&
          !repeats(plan.sum.size, plan.sum.lhs) &&
          !repeats(plan.sum.size, plan.sum.rhs);
  pairs |= matrices;
  if (matrices && plan.packed)
    packed = emitView(b, loc, kernel.getBuffers()[0], plan.packed->view());
  compute = pairs ? Type(b.getBF16Type()) : accumulate;
}

void ContractionEmitter::chooseTiles() {
  if (matrices)
    return chooseMatrixTiles();
  // An f64 tile of as many elements takes twice the registers.
  width = accumulate.isF64() ? target.columns / 2 : target.columns;
  width = std::min(width, plan.columnDim().size);
  int64_t rows = plan.blockRows;
  height = partsOf(rows, partsOf(rows, target.rows));
  groupRows = std::min(rows, kGroupTiles * height);
  // One step in each iteration: LLVM schedules the loads of several so early
  // that sums are spilled, and the loop costs little compared with so many
  // products.
  kStep = pairs ? 2 : 1;
  if (plan.streamsMicropanels()) { // a micropanel, some lines at a time
    width = std::min(kMicropanel, plan.columnDim().size);
    kStep = kQuantBlock;
  }
  // Several columns of rhs, a register of each at a time.
  if (plan.streams()) {
    width = std::min(target.lanes, plan.columnDim().size);
    kStep = target.lanes * 4 / (plan.rhs.memory.getIntOrFloatBitWidth() / 8);
  }
}

void ContractionEmitter::chooseStaging() {
  if (matrices)
    return chooseMatrixStaging();
  ContractionDim row = plan.rowDim(), column = plan.columnDim();
  lhs.sumFirst = plan.sum.lhs != 1 && plan.sum.size > 1 && row.lhs == 1;
  rhs.sumFirst = true;
  bool converts =
      plan.lhs.memory != compute || lhs.repeatsTile || lhs.repeatsSum;
  bool strided = plan.sum.size > 1 && plan.sum.lhs != 1;
  lhs.staged = converts || strided;
  bool usedOnce = plan.rowDim().size <= height;
  rhs.staged = plan.quant || pairs || plan.rhs.memory != compute ||
               rhs.repeatsTile || rhs.repeatsSum ||
               (column.size > 1 && column.rhs != 1) || !usedOnce;
  if (plan.streams() || plan.streamsMicropanels())
    rhs.staged = false;
}

// The staged part of a chunk fits the budget: all panels, one group of rows.
void ContractionEmitter::chooseChunks() {
  int64_t bytes = compute.getIntOrFloatBitWidth() / 8;
  int64_t columns = partsOf(plan.blockColumns, width) * width;
  int64_t perStep =
      (lhs.staged ? groupRows * bytes : 0) + (rhs.staged ? columns * bytes : 0);
  int64_t k = plan.sum.size, limit = k;
  if (perStep)
    limit = std::max<int64_t>(
        (matrices ? kMatrixBytes : target.sharedBytes) / perStep, 64);
  if (packed)
    limit = plan.packed->depth;
  chunksOfSum = partsOf(k, limit);
  chunk = chunksOfSum == 1 ? k
                           : llvm::alignTo(partsOf(k, chunksOfSum),
                                           std::max<int64_t>(16, kStep));
  // With quantized weights a chunk has whole blocks.
  if (plan.quant && chunksOfSum > 1)
    chunk = llvm::alignTo(chunk, kQuantBlock);
  chunksOfSum = partsOf(k, chunk);
  chunks = chunksOfSum;
  for (const ContractionDim &dim : plan.outerSums)
    chunks *= dim.size;
}

// Tiles of two heights that differ by one, so that none is much lower than the
// others, if so many rows can be covered that way.
ContractionEmitter::RowCover
ContractionEmitter::coverEvenly(int64_t rows) const {
  int64_t tiles = partsOf(rows, height);
  int64_t tall = rows - tiles * (height - 1);
  if (tall < 0)
    return coverFromTop(rows);
  return {tall, tiles - tall, 0};
}

// As many of the full height as fit, so that only the height of the remainder
// is added.
ContractionEmitter::RowCover
ContractionEmitter::coverFromTop(int64_t rows) const {
  RowCover cover{rows / height, 0, rows % height};
  if (cover.rest && cover.rest == height - 1)
    return {cover.tall, 1, 0};
  return cover;
}
