// The grid of a CPU's contraction: how it is divided into blocks.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/Contraction.h"

using namespace tessera;

namespace {
/// Costs of staging one element, in multiplications that a core does in the
/// meantime; for lhs read in place, the cost of loading its rows from beyond
/// L2. Measured with `tessera bench gemm` on a Xeon of the Emerald Rapids
/// class.
struct Costs {
  double stageRhs, stageLhs, readLhs;
  double partial; ///< loading and storing a partial sum between two chunks
  double multipliesPerCycle;
  /// The elements of a block's columns that stay in L2: columns × the length of
  /// a chunk of the sum.
  int64_t micropanelElements;
  int64_t tile; ///< columns of a register tile
};
// Two FMAs of 16 lanes, elements of f32.
constexpr Costs kVectors{30, 24, 7, 25, 32, 768 * 1024 / 4, 48};
// Matrix registers, elements of bf16: they multiply ten times as fast, with the
// same memory.
constexpr Costs kMatrices{116, 82, 82, 85, 340, 1024 * 1024 / 2, 32};
// The same with weights in micropanels, which are not staged: a group of rows
// loads them from the last-level cache, or from memory.
constexpr Costs kMicropanels{40, 82, 82, 0, 540, 1024 * 1024 / 2, 32};
// And with packed rows: both operands come from the last-level cache, and
// partial sums occupy part of L2.
constexpr Costs kPacked{40, 16, 16, 0, 340, 1024 * 1024 / 2, 32};
// With packed rows: rows and columns such that L2 holds their sums and the
// rows' chunk.
constexpr int64_t kPackedRows = 512, kPackedColumns = 512;
// Rows of a block of groups with few rows; a group with more reads its weights
// again.
constexpr int64_t kStreamedGroupRows = 32;
} // namespace
// A block's dispatch, in cycles.
static constexpr double kDispatch = 4000;

// The cost of columns in register tiles: a narrow one has too few chains to
// hide the latency of multiplications.
static double columnsCost(int64_t columns, const Costs &costs) {
  if (costs.tile == 32)
    return llvm::alignTo(columns, 32);
  constexpr double kRest[] = {0, 20, 33, 48};
  return columns / 48 * 48 + kRest[partsOf(columns % 48, 16)];
}

namespace {
/// The sizes and costs of a grid.
struct Grid {
  const ContractionPlan &plan;
  int64_t m, n, k, outer; ///< of the whole, all sums in k
  bool lhsInPlace;
  const Costs &costs;

  double loss(int64_t rows, int64_t columns) const;
  double lossOfBlock(int64_t rows, int64_t columns) const;
  double idleShare(int64_t rows, int64_t columns, int64_t threads) const;
};
} // namespace

// The fraction of a block's time that is not multiplication.
double Grid::lossOfBlock(int64_t rows, int64_t columns) const {
  double work = double(rows) * columns * k / costs.multipliesPerCycle;
  double loss = costs.stageRhs / rows +
                (lhsInPlace ? costs.readLhs : costs.stageLhs) / columns +
                kDispatch / work;
  if (int64_t chunk = costs.micropanelElements / columns; chunk < plan.sum.size)
    loss += costs.partial / chunk;
  return loss;
}

// The fraction of time in which threads wait for the last block: whole blocks
// take equally long, those of the edges fill gaps.
double Grid::idleShare(int64_t rows, int64_t columns, int64_t threads) const {
  int64_t whole = outer * (m / rows) * (n / columns);
  double one = double(rows) * columns,
         all = double(outer) * m * n; // of multiplications, without k
  double longest =
      std::max<double>(partsOf(whole, threads) * one, all / threads);
  if (whole < threads) // the largest edge
    longest = std::max<double>(longest, whole ? one : 0);
  return longest * threads / all - 1;
}

double Grid::loss(int64_t rows, int64_t columns) const {
  double narrow = (n / columns * columnsCost(columns, costs) +
                   columnsCost(n % columns, costs)) /
                      n -
                  1;
  int64_t blocks = outer * partsOf(m, rows) * partsOf(n, columns);
  return lossOfBlock(rows, columns) + narrow +
         0.7 * idleShare(rows, columns, 2) + 0.2 * idleShare(rows, columns, 8) +
         0.3 / blocks;
}

// Blocks of a few hundred kilobytes: tens of microseconds each, and enough of
// them that threads do not wait long for the last one.
static void chooseStreamGrid(ContractionPlan &plan) {
  // Usually several groups have rows, and each needs fewer blocks.
  constexpr int64_t kBlockBytes = 256 << 10, kBlocks = 16, kBlocksOfGroup = 8;
  int64_t n = plan.columnDim().size;
  int64_t bytes = plan.terms() * plan.rhs.memory.getIntOrFloatBitWidth() / 8;
  int64_t columns = std::min(
      kBlockBytes / bytes, partsOf(n, plan.groups ? kBlocksOfGroup : kBlocks));
  plan.blockRows = plan.groups
                       ? std::min(plan.rowDim().size, kStreamedGroupRows)
                       : plan.rowDim().size;
  plan.blockColumns = std::min<int64_t>(
      llvm::alignTo(std::max<int64_t>(columns, 1), CpuBlock::kColumnStep), n);
}

// Some groups have more rows than others. A block with only the few excess rows
// of one would load its weights for those alone.
static int64_t rowsOfUnequalGroups(const ContractionPlan &plan) {
  int64_t rows = llvm::alignTo(2 * plan.typicalRows(), PackedRows::kTile);
  return std::max(plan.blockRows,
                  std::min({rows, plan.rowDim().size, kPackedRows}));
}

void tessera::chooseGrid(ContractionPlan &plan) {
  if (plan.streams() || plan.streamsMicropanels())
    return chooseStreamGrid(plan);
  Grid grid{plan,
            plan.typicalRows(),
            plan.columnDim().size,
            plan.sum.size,
            plan.outerCount(),
            plan.lhs.memory.isF32() && plan.lhs.element.isF32() &&
                plan.sum.lhs == 1,
            !plan.fitsMatrices()   ? kVectors
            : plan.packed          ? kPacked
            : plan.isMicropanels() ? kMicropanels
                                   : kMatrices};
  for (const ContractionDim &dim : plan.outerSums)
    grid.k *= dim.size;
  // Groups that are runs of the sum, as if all were of equal length.
  if (plan.groups && plan.groups->ofSum && !plan.groups->isPadded)
    grid.k = partsOf(grid.k, plan.groups->count);
  int64_t m = grid.m, n = grid.n;
  double best = std::numeric_limits<double>::infinity();
  for (int64_t parts = 1; parts <= partsOf(m, CpuBlock::kRowStep); ++parts) {
    int64_t rows = partsOf(m, parts);
    if (parts > 1)
      rows = llvm::alignTo(rows, CpuBlock::kRowStep);
    if (rows > (plan.packed ? kPackedRows : CpuBlock::kMaxRows))
      continue;
    for (int64_t columns = CpuBlock::kColumnStep;;
         columns += CpuBlock::kColumnStep) {
      columns = std::min(columns, n);
      if (double loss = grid.loss(rows, columns); loss < best) {
        best = loss;
        plan.blockRows = rows;
        plan.blockColumns = columns;
      }
      if (columns >=
          std::min(n, plan.packed ? kPackedColumns : CpuBlock::kMaxColumns))
        break;
    }
  }
  if (plan.packed && plan.groups)
    plan.blockRows = rowsOfUnequalGroups(plan);
}
