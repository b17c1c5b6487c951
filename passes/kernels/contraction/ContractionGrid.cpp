// How the product of a CPU's contraction is cut into blocks.
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/contraction/Contraction.h"

using namespace tessera;

namespace {
/// What staging one element costs, in multiplications that a core does
/// meanwhile; of lhs that is read in place, what its rows cost when they come
/// from beyond the second cache. Measured with `tessera bench gemm` on a Xeon
/// of the Emerald Rapids class.
struct Costs {
  double stageRhs, stageLhs, readLhs;
  double partial; ///< loading and storing a partial sum between two chunks
  double multipliesPerCycle;
  /// Columns of a chunk stay in the second cache: elements.
  int64_t micropanelElements;
  int64_t tile; ///< columns of a register tile
};
// Two FMAs of 16 lanes, elements of f32.
constexpr Costs kVectors{30, 24, 7, 25, 32, 768 * 1024 / 4, 48};
// Matrix registers, elements of bf16: they multiply ten times as fast, and
// memory is what it was.
constexpr Costs kMatrices{116, 82, 82, 85, 340, 1024 * 1024 / 2, 32};
// The same with weights in micropanels, which are not staged: a group of rows
// brings them from the last cache, or from memory.
constexpr Costs kMicropanels{40, 82, 82, 0, 540, 1024 * 1024 / 2, 32};
// And with packed rows: both operands come from the last cache, and partial
// sums have their share of the second.
constexpr Costs kPacked{40, 16, 16, 0, 340, 1024 * 1024 / 2, 32};
// Of those: rows and columns whose sums, and whose rows' chunk, it holds.
constexpr int64_t kPackedRows = 512, kPackedColumns = 512;
// Rows of a block where groups have few: one that has more reads its weights
// again.
constexpr int64_t kStreamedGroupRows = 32;
} // namespace
// A block's dispatch, in cycles.
static constexpr double kDispatch = 4000;
static constexpr int64_t kColumnStep = 16, kRowStep = 32, kMaxRows = 2048,
                         kMaxColumns = 1536;

// Columns as register tiles take them: a narrow one has too few chains to hide
// what a multiplication takes.
static double columnsCost(int64_t columns, const Costs &costs) {
  if (costs.tile == 32)
    return llvm::alignTo(columns, 32);
  constexpr double kRest[] = {0, 20, 33, 48};
  return columns / 48 * 48 + kRest[partsOf(columns % 48, 16)];
}

namespace {
/// What a grid is weighed by.
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

// The share of a block's time that is not multiplication.
double Grid::lossOfBlock(int64_t rows, int64_t columns) const {
  double work = double(rows) * columns * k / costs.multipliesPerCycle;
  double loss = costs.stageRhs / rows +
                (lhsInPlace ? costs.readLhs : costs.stageLhs) / columns +
                kDispatch / work;
  if (int64_t chunk = costs.micropanelElements / columns; chunk < plan.sum.size)
    loss += costs.partial / chunk;
  return loss;
}

// Share of time in which threads wait for the last block: the whole ones take
// equally long, those of the edges fill gaps.
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
// them that nobody waits long for the last one.
static void chooseStreamGrid(ContractionPlan &plan) {
  // Several groups have rows, mostly: each needs fewer blocks.
  constexpr int64_t kBlockBytes = 256 << 10, kBlocks = 16, kBlocksOfGroup = 8;
  int64_t n = plan.columnDim().size;
  int64_t bytes = plan.terms() * plan.rhs.memory.getIntOrFloatBitWidth() / 8;
  int64_t columns = std::min(
      kBlockBytes / bytes, partsOf(n, plan.groups ? kBlocksOfGroup : kBlocks));
  plan.blockRows = plan.groups
                       ? std::min(plan.rowDim().size, kStreamedGroupRows)
                       : plan.rowDim().size;
  plan.blockColumns = std::min<int64_t>(
      llvm::alignTo(std::max<int64_t>(columns, 1), kColumnStep), n);
}

// Some groups have more rows than others, and a block with the few that one has
// too many would bring its weights for those alone.
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
  // Groups that are runs of the sum, as if all were equally long.
  if (plan.groups && plan.groups->ofSum && !plan.groups->isPadded)
    grid.k = partsOf(grid.k, plan.groups->count);
  int64_t m = grid.m, n = grid.n;
  double best = std::numeric_limits<double>::infinity();
  for (int64_t parts = 1; parts <= partsOf(m, kRowStep); ++parts) {
    int64_t rows = partsOf(m, parts);
    if (parts > 1)
      rows = llvm::alignTo(rows, kRowStep);
    if (rows > (plan.packed ? kPackedRows : kMaxRows))
      continue;
    for (int64_t columns = kColumnStep;; columns += kColumnStep) {
      columns = std::min(columns, n);
      if (double loss = grid.loss(rows, columns); loss < best) {
        best = loss;
        plan.blockRows = rows;
        plan.blockColumns = columns;
      }
      if (columns >= std::min(n, plan.packed ? kPackedColumns : kMaxColumns))
        break;
    }
  }
  if (plan.packed && plan.groups)
    plan.blockRows = rowsOfUnequalGroups(plan);
}
