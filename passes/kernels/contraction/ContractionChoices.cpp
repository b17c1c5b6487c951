// Parameters of a contraction's kernel: element types, register tiles, staging
// and the length of chunks of the sum.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/ContractionBlock.h"

using namespace mlir;
using namespace tessera;

// Register tiles of a group: enough that its rows fill cache lines if they are
// the contiguous dimension.
static constexpr int64_t kGroupTiles = 4;

// A block's staged copies for matrix registers: their processors have 2 MiB of
// L2.
static constexpr int64_t kMatrixBytes = 1280 << 10;
// Rows that are staged for matrix registers at a time; more with weights in
// micropanels, which are not staged.
static constexpr int64_t kMatrixRows = 128, kMatrixRowsOfMicropanels = 512;

static bool repeats(const ContractionDim &dim, int64_t stride) {
  return dim.size > 1 && stride == 0;
}

// bf16 is multiplied directly if the target has the instruction; otherwise
// everything below f32 is upcast while staged.
static void chooseTypes(ContractionTiles &tiles, const ContractionPlan &plan,
                        const TileTarget &target) {
  Builder b(plan.lhs.element.getContext());
  tiles.accumulate = plan.lhs.element.isF64() ? b.getF64Type() : b.getF32Type();
  auto isBf16 = [](const ContractionOperand &operand) {
    return operand.memory.isBF16() && operand.element.isBF16();
  };
  ContractionDim row = plan.rowDim(), column = plan.columnDim();
  tiles.matrices = target.matrixTiles && plan.fitsMatrices();
  tiles.readsPacked = tiles.matrices && plan.packed;
  tiles.pairs = target.bf16Dot && isBf16(plan.lhs) && isBf16(plan.rhs) &&
                !repeats(row, row.lhs) && !repeats(column, column.rhs) &&
                !repeats(plan.sum, plan.sum.lhs) &&
                !repeats(plan.sum, plan.sum.rhs);
  tiles.pairs |= tiles.matrices;
  tiles.compute = tiles.pairs ? Type(b.getBF16Type()) : tiles.accumulate;
}

// Few rows × rows of weights: the weights are a left operand in place, neither
// copied nor transposed.
static void chooseMatrixTiles(ContractionTiles &tiles,
                              const ContractionPlan &plan) {
  tiles.width = tiles.height = PackedRows::kTile;
  tiles.kStep = PackedRows::kTerms;
  bool isMicropanels = plan.isMicropanels();
  tiles.groupRows = std::min(plan.blockRows, isMicropanels || tiles.readsPacked
                                                 ? kMatrixRowsOfMicropanels
                                                 : kMatrixRows);
  if (plan.streamsMicropanels()) // one run of memory
    tiles.width = kMicropanel;
  bool isWhole = plan.sum.size % PackedRows::kTerms == 0;
  bool inPlace =
      plan.streamsMicropanels() && !plan.groups && plan.sum.lhs == 1 && isWhole;
  tiles.stagesRows = !inPlace && !tiles.readsPacked;
  tiles.transposed = plan.streams() && isWhole;
  tiles.rowsSumFirst = tiles.transposed;
  tiles.stagesColumns = !isMicropanels && !tiles.transposed;
  // A panel is staged only once then: all rows of the block are multiplied by
  // it as one group, and it is not read again, neither with other rows nor to
  // pad its terms.
  tiles.interleaves = tiles.readsPacked && !isMicropanels && !plan.groups &&
                      !plan.quant->sumsRows && !plan.quant->layout.nf4() &&
                      plan.blockRows <= tiles.groupRows && isWhole &&
                      plan.blockColumns % PackedRows::kTile == 0 &&
                      plan.columnDim().size % plan.blockColumns == 0;
}

static void chooseVectorTiles(ContractionTiles &tiles,
                              const ContractionPlan &plan,
                              const TileTarget &target) {
  ContractionDim row = plan.rowDim(), column = plan.columnDim();
  // An f64 tile of as many elements takes twice the registers.
  tiles.width = tiles.accumulate.isF64() ? target.columns / 2 : target.columns;
  tiles.width = std::min(tiles.width, column.size);
  int64_t rows = plan.blockRows;
  tiles.height = partsOf(rows, partsOf(rows, target.rows));
  tiles.groupRows = std::min(rows, kGroupTiles * tiles.height);
  // One step in each iteration: LLVM schedules the loads of several so early
  // that sums are spilled, and the loop costs little compared with so many
  // products.
  tiles.kStep = tiles.pairs ? 2 : 1;
  if (plan.streamsMicropanels()) { // a micropanel, some lines at a time
    tiles.width = std::min(kMicropanel, column.size);
    tiles.kStep = kQuantBlock;
  }
  // Several columns of rhs, a register of each at a time.
  if (plan.streams()) {
    tiles.width = std::min(target.lanes, column.size);
    tiles.kStep =
        target.lanes * 4 / (plan.rhs.memory.getIntOrFloatBitWidth() / 8);
  }
  bool isStrided = plan.sum.size > 1 && plan.sum.lhs != 1;
  tiles.rowsSumFirst = isStrided && row.lhs == 1;
  tiles.stagesRows = isStrided || plan.lhs.memory != tiles.compute ||
                     repeats(row, row.lhs) || repeats(plan.sum, plan.sum.lhs);
  bool usedOnce = row.size <= tiles.height;
  tiles.stagesColumns =
      !plan.streams() && !plan.streamsMicropanels() &&
      (plan.quant || tiles.pairs || plan.rhs.memory != tiles.compute ||
       repeats(column, column.rhs) || repeats(plan.sum, plan.sum.rhs) ||
       (column.size > 1 && column.rhs != 1) || !usedOnce);
}

// A register of sums for each row where words are multiplied by vpdpbusd, else
// pairs in two. Few pairs of 6 bits are added before they are multiplied by
// their scale, and words of 8 bits are extended to 16, which also takes
// registers (ByteRows.cpp).
static void chooseByteTiles(ContractionTiles &tiles,
                            const ContractionPlan &plan,
                            const TileTarget &target) {
  tiles.width = std::min(kMicropanel, plan.columnDim().size);
  const int64_t most = target.byteDot                 ? 12
                       : plan.quant->layout.bits >= 6 ? 4
                                                      : 6;
  tiles.height = partsOf(plan.blockRows, partsOf(plan.blockRows, most));
  tiles.groupRows = plan.blockRows;
  tiles.kStep = kQuantBlock;
  tiles.stagesRows = tiles.stagesColumns = false;
  tiles.rowsSumFirst = false;
}

// The staged part of a chunk fits the budget: all panels, one group of rows.
static void chooseChunks(ContractionTiles &tiles, const ContractionPlan &plan,
                         const TileTarget &target) {
  int64_t bytes = tiles.compute.getIntOrFloatBitWidth() / 8;
  int64_t columns = partsOf(plan.blockColumns, tiles.width) * tiles.width;
  int64_t perStep = (tiles.stagesRows ? tiles.groupRows * bytes : 0) +
                    (tiles.stagesColumns ? columns * bytes : 0);
  int64_t k = plan.sum.size, limit = k;
  if (perStep)
    limit = std::max<int64_t>(
        (tiles.matrices ? kMatrixBytes : target.sharedBytes) / perStep, 64);
  if (tiles.readsPacked)
    limit = plan.packed->depth;
  tiles.chunksOfSum = partsOf(k, limit);
  tiles.chunk = tiles.chunksOfSum == 1
                    ? k
                    : llvm::alignTo(partsOf(k, tiles.chunksOfSum),
                                    std::max<int64_t>(16, tiles.kStep));
  // With quantized weights a chunk has whole blocks.
  if (plan.quant && tiles.chunksOfSum > 1)
    tiles.chunk = llvm::alignTo(tiles.chunk, kQuantBlock);
  tiles.chunksOfSum = partsOf(k, tiles.chunk);
  tiles.chunks = tiles.chunksOfSum;
  for (const ContractionDim &dim : plan.outerSums)
    tiles.chunks *= dim.size;
}

ContractionTiles tessera::chooseTiles(const ContractionPlan &plan,
                                      const TileTarget &target) {
  ContractionTiles tiles;
  chooseTypes(tiles, plan, target);
  if (tiles.matrices)
    chooseMatrixTiles(tiles, plan);
  else if (plan.quant && plan.quant->bytes && !plan.quant->streams)
    chooseByteTiles(tiles, plan, target);
  else
    chooseVectorTiles(tiles, plan, target);
  chooseChunks(tiles, plan, target);
  return tiles;
}
