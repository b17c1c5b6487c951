// The choices of a contraction's kernel as an attribute: plan-kernels writes it
// on the cluster, people and tuners edit it, emit-kernels follows it.
#include "passes/kernels/contraction/KernelChoice.h"
#include "passes/kernels/KernelPlan.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;
using tile::ContractionPlanAttr;
using tile::Engine;
using tile::OperandSource;

// Rows or columns of a block that a person chose, with packed rows: more than
// the search for a grid considers would exceed the caches by far.
static constexpr int64_t kMaxPacked = 512;

static Engine engineOf(const ContractionPlan &plan,
                       const TilingContext &context) {
  if (context.isGpu())
    return gpuEngine(plan, context.target());
  return context.hasMatrixTiles() && plan.fitsMatrices() ? Engine::matrix
                                                         : Engine::vector;
}

ContractionPlanAttr tessera::choicesOf(const ContractionPlan &plan,
                                       const TilingContext &context,
                                       MLIRContext *mlir) {
  bool integers = plan.quant && plan.quant->integers,
       bytes = plan.quant && plan.quant->bytes;
  bool streamed = plan.streams() || (plan.quant && plan.quant->streams);
  return ContractionPlanAttr::get(mlir, engineOf(plan, context),
                                  integers      ? OperandSource::integers
                                  : bytes       ? OperandSource::bytes
                                  : plan.packed ? OperandSource::packed
                                                : OperandSource::memory,
                                  streamed && !context.isGpu()
                                      ? OperandSource::streamed
                                      : OperandSource::memory,
                                  plan.blockRows, plan.blockColumns);
}

// A GPU's kernel follows from its tile, and there are kernels for some tiles.
static llvm::Error takeGpuTile(ContractionPlan &plan,
                               ContractionPlanAttr wanted,
                               const TilingContext &context) {
  std::vector<ContractionPlan> plans =
      otherGpuGrids(plan, context.target(), /*all=*/true);
  plans.insert(plans.begin(), plan);
  std::string known;
  for (const ContractionPlan &each : plans) {
    if (each.blockRows == wanted.getRows() &&
        each.blockColumns == wanted.getColumns()) {
      plan = each;
      ContractionPlanAttr made = choicesOf(plan, context, wanted.getContext());
      if (made == wanted)
        return llvm::Error::success();
      return refusePlan("the kernel of tile " +
                        tileText(wanted.getRows(), wanted.getColumns()) +
                        " is " + stringifyEngine(made.getEngine()) +
                        ", lhs = " + stringifyOperandSource(made.getLhs()) +
                        ", rhs = " + stringifyOperandSource(made.getRhs()));
    }
    known += (known.empty() ? "" : ", ") +
             tileText(each.blockRows, each.blockColumns);
  }
  return refusePlan("no kernel has the tile " +
                    tileText(wanted.getRows(), wanted.getColumns()) +
                    "; expected one of " + known);
}

static llvm::Error takeEngine(ContractionPlan &plan, ContractionPlanAttr wanted,
                              const TilingContext &context) {
  Engine chosen = engineOf(plan, context);
  if (wanted.getEngine() != chosen) {
    if (chosen != Engine::matrix || wanted.getEngine() != Engine::vector)
      return refusePlan("the engine " + stringifyEngine(wanted.getEngine()) +
                        " cannot multiply these operands; expected " +
                        stringifyEngine(chosen));
    plan.usesMatrices = false;
    plan.packed.reset();
  }
  if (wanted.getLhs() == OperandSource::memory)
    plan.packed.reset();
  ContractionPlanAttr made = choicesOf(plan, context, wanted.getContext());
  if (made.getLhs() != wanted.getLhs())
    return refusePlan("lhs cannot be " +
                      stringifyOperandSource(wanted.getLhs()) + "; expected " +
                      stringifyOperandSource(made.getLhs()));
  if (made.getRhs() != wanted.getRhs())
    return refusePlan("rhs cannot be " +
                      stringifyOperandSource(wanted.getRhs()) + "; expected " +
                      stringifyOperandSource(made.getRhs()));
  return llvm::Error::success();
}

static llvm::Error takeTile(ContractionPlan &plan, ContractionPlanAttr wanted) {
  int64_t rows = wanted.getRows(), columns = wanted.getColumns();
  if (rows == plan.blockRows && columns == plan.blockColumns)
    return llvm::Error::success();
  if (wanted.getRhs() == OperandSource::streamed)
    return refusePlan("the tile of a streamed operand is fixed; expected " +
                      tileText(plan.blockRows, plan.blockColumns));
  int64_t allRows = plan.rowDim().size, allColumns = plan.columnDim().size;
  int64_t mostRows = plan.packed ? kMaxPacked : CpuBlock::kMaxRows,
          mostColumns = plan.packed ? kMaxPacked : CpuBlock::kMaxColumns;
  if (rows > std::min(allRows, mostRows) ||
      (rows != allRows && rows % CpuBlock::kRowStep))
    return refusePlan("a tile of " + std::to_string(rows) +
                      " rows; expected a multiple of 32, or all " +
                      std::to_string(allRows) + ", at most " +
                      std::to_string(mostRows));
  if (columns > std::min(allColumns, mostColumns) ||
      (columns != allColumns && columns % CpuBlock::kColumnStep))
    return refusePlan("a tile of " + std::to_string(columns) +
                      " columns; expected a multiple of 16, or all " +
                      std::to_string(allColumns) + ", at most " +
                      std::to_string(mostColumns));
  plan.blockRows = rows;
  plan.blockColumns = columns;
  return llvm::Error::success();
}

llvm::Expected<KernelChoice>
tessera::chooseContraction(ClusterOp cluster, const TilingContext &context,
                           bool bytes) {
  llvm::Expected<ContractionPlan> plan =
      planContraction(cluster, context.target());
  if (!plan)
    return plan.takeError();
  auto named = wantedPlan<ContractionPlanAttr>(cluster);
  if (!named)
    return named.takeError();
  ContractionPlanAttr wanted = *named;
  if (wanted)
    bytes = wanted.getLhs() == OperandSource::bytes;
  if (bytes && !context.isGpu() && canMultiplyBytes(*plan))
    chooseByteGrid(*plan);
  if (context.hasMatrixTiles())
    if ((plan->packed = packedRows(*plan)))
      chooseGrid(*plan);
  if (!wanted || wanted == choicesOf(*plan, context, cluster.getContext()))
    return KernelChoice{std::move(*plan), false};
  if (context.isGpu()) {
    if (llvm::Error error = takeGpuTile(*plan, wanted, context))
      return std::move(error);
  } else {
    if (llvm::Error error = takeEngine(*plan, wanted, context))
      return std::move(error);
    if (llvm::Error error = takeTile(*plan, wanted))
      return std::move(error);
  }
  return KernelChoice{std::move(*plan), true};
}
