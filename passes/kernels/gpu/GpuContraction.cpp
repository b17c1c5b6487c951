// Contractions (matmuls, GEMMs) on a GPU without warp specialization: all
// threads copy and multiply. A block owns one tile of the product. Chunks of
// both operands along the sum are copied to a ring of stages in shared memory
// by asynchronous copies (cp.async) while tensor cores multiply the oldest
// stage (software pipelining); the epilogue runs on the accumulators.
#include "passes/kernels/gpu/GpuContraction.h"
#include "passes/kernels/contraction/KernelChoice.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;
using namespace tessera::gpu;

namespace {

/// The division of a block's tile among warps, and among warpgroups.
struct BlockTile {
  int64_t rows, columns;
  std::array<int64_t, 2> warps, warpgroups;
};

// Large tiles read less memory for each product; small ones fill the chip if
// there are few of them.
constexpr BlockTile kTiles[] = {{128, 128, {2, 4}, {8, 1}},
                                {64, 64, {2, 2}, {4, 1}},
                                {16, 64, {1, 4}, {1, 4}},
                                {16, 32, {1, 2}, {1, 2}},
                                {16, 16, {1, 1}, {1, 1}}};
// The first of those for few rows, from wide to narrow.
constexpr size_t kFewRowTile = 2;
// The number of blocks that fills a chip of about 100 SMs.
constexpr int64_t kFullChip = 160;
// Bytes of a chunk of the sum: one half of a swizzled row of 128.
constexpr int64_t kChunkBytes = 64;
constexpr int64_t kMaxStages = 4;
// With few rows a block streams columns from memory, which takes more bytes in
// flight: longer chunks, so that each iteration's barrier and address
// arithmetic are of more bytes, and more stages, of which at least two blocks
// fit on an SM.
constexpr int64_t kChunkBytesOfFew = 256, kMaxStagesOfFew = 8,
                  kStageBytesOfFew = 64 << 10;

const BlockTile &tileOf(const ContractionPlan &plan) {
  return *llvm::find_if(kTiles, [&](const BlockTile &tile) {
    return tile.rows == plan.blockRows && tile.columns == plan.blockColumns;
  });
}

class GpuContraction : GpuProduct {
public:
  using GpuProduct::GpuProduct;
  void emit(const TileTarget &target);

private:
  void chooseStages();
  void stageStep(Value step);
  Value multiply();
  Value withFirstRow(Value sum);
  /// Whether rows of the tile that the product lacks are not copied, not even
  /// as zeros: what is in their shared memory reaches their sums only.
  bool omitsRows() const {
    return hasFewRows && !plan.groups && !lhs.sumInRows;
  }

  int64_t stages;
  bool hasFewRows; ///< a tile of 16 rows
};

} // namespace

//===--- the loop ---------------------------------------------------------===//

void GpuContraction::chooseStages() {
  int64_t bytes = element.getIntOrFloatBitWidth() / 8;
  hasFewRows = plan.blockRows == kTiles[kFewRowTile].rows;
  // No longer than the sum: the rest would be copied as zeros.
  int64_t ofSum = llvm::alignTo(plan.sum.size * bytes, kChunkBytes);
  chooseChunks((hasFewRows ? std::min(kChunkBytesOfFew, ofSum) : kChunkBytes) /
               bytes);
  int64_t most = kMaxStages;
  if (hasFewRows)
    most = std::min(kMaxStagesOfFew,
                    kStageBytesOfFew /
                        ((plan.blockRows + plan.blockColumns) * chunk * bytes));
  stages = std::clamp<int64_t>(steps + 1, 2, most);
}

// Starts copying a chunk of both operands.
void GpuContraction::stageStep(Value step) {
  Value stage = e.rem(step, stages);
  Source rows = chunkOf(lhs, step);
  if (omitsRows()) {
    rows.rows = Value();
    lhs.staged.copyRows(e, stage, 0, plan.rowDim().size, rows);
  } else {
    lhs.staged.copy(e, stage, rows);
  }
  rhs.staged.copy(e, stage, chunkOf(rhs, step));
}

Value GpuContraction::multiply() {
  // Of long chunks the addresses of all stages at once would spill.
  const bool loops = hasFewRows && steps >= stages - 1 && !ownSteps();
  auto type =
      VectorType::get({plan.blockRows, plan.blockColumns}, b.getF32Type());
  Value sum = sumOverSteps(
      e,
      {stages, steps, ownSteps(), loops, [&](Value step) { stageStep(step); },
       [&](Value stage, Value sum) -> Value {
         return b.create<tile::MmaOp>(e.loc, type, operand(lhs, stage),
                                      operand(rhs, stage), sum);
       }},
      type);
  return omitsRows() && !plan.row ? withFirstRow(sum) : sum;
}

// Zeros but for the first row: the epilogue adds up the rows of a product that
// has none as a dimension.
Value GpuContraction::withFirstRow(Value sum) {
  auto shape = cast<VectorType>(sum.getType()).getShape();
  Value isFirst =
      e.compare(arith::CmpIPredicate::slt, e.iota(e.index(0), shape, 0),
                e.spreadIndex(e.index(1), shape));
  return b.create<arith::SelectOp>(e.loc, isFirst, sum, e.splat(0, shape));
}

void GpuContraction::emit(const TileTarget &target) {
  element = operandType(plan.lhs.memory, plan.rhs.memory);
  chooseStages();
  const BlockTile &tile = tileOf(plan);
  kernel.setWarps(target.warpgroups && element.isBF16() ? tile.warpgroups
                                                        : tile.warps);
  locate(kernel.getBlockNumber());
  makeSides(stages);
  // Loop-invariant values of the epilogue are emitted before the loop.
  Operation *mark = e.index(0).getDefiningOp();
  EmitScope top(epilogue, b);
  top.builder.setInsertionPoint(mark);
  emitTile([&] { return multiply(); }, top);
  describeGemm();
}

//===--- entry ------------------------------------------------------------===//

// Each element of a row becomes two tf32: too many registers for the large
// tile.
static bool isQuantizedFloat(const ContractionPlan &plan) {
  return plan.quant && plan.lhs.memory.isF32();
}

void tessera::chooseGpuGrid(ContractionPlan &plan, const TileTarget &target) {
  int64_t m = plan.typicalRows(), n = plan.columnDim().size,
          outer = plan.outerCount();
  auto take = [&](const BlockTile &tile) {
    plan.blockRows = tile.rows;
    plan.blockColumns = tile.columns;
  };
  auto blocks = [&](const BlockTile &tile) {
    return outer * partsOf(m, tile.rows) * partsOf(n, tile.columns);
  };
  if (m <= 16) {
    // The widest tile that fills the chip, since each one reads the rows again.
    // With quantized weights few rows are small compared with the columns of a
    // narrow tile; contiguous columns of 32 bytes would waste half of a burst.
    size_t narrowest = plan.quant                  ? size_t(m <= 4)
                       : plan.columnDim().rhs == 1 ? 1
                                                   : 2;
    size_t i = kFewRowTile;
    while (i < kFewRowTile + narrowest && blocks(kTiles[i]) < kFullChip)
      ++i;
    return take(kTiles[i]);
  }
  if (canPipeline(plan, target))
    return choosePipelinedGrid(plan, target);
  bool large = m > 64 && n > 64 && blocks(kTiles[0]) >= kFullChip &&
               !isQuantizedFloat(plan);
  take(large ? kTiles[0] : kTiles[1]);
}

std::vector<ContractionPlan> tessera::otherGpuGrids(const ContractionPlan &plan,
                                                    const TileTarget &target,
                                                    bool all) {
  int64_t m = plan.rowDim().size, n = plan.columnDim().size;
  int64_t products = m * n * plan.terms();
  for (unsigned dim : plan.outer)
    products *= plan.dims[dim].size;
  // Of sums over a quantized matrix's rows, groups fit the tile
  // (QuantGrid.cpp).
  const bool sumsRows = plan.quant && plan.quant->sumsRows;
  if (plan.groups || m <= 16 || isQuantizedFloat(plan) || sumsRows ||
      (!all && products < kLeastProducts))
    return {};
  if (canPipeline(plan, target))
    return otherPipelinedGrids(plan, target, all);
  std::vector<ContractionPlan> others;
  for (const BlockTile &tile : {kTiles[0], kTiles[1]})
    if (tile.rows != plan.blockRows && (all || (m > 64 && n > 64))) {
      others.push_back(plan);
      others.back().blockRows = tile.rows;
      others.back().blockColumns = tile.columns;
    }
  return others;
}

tile::Engine tessera::gpuEngine(const ContractionPlan &plan,
                                const TileTarget &target) {
  if (plan.quant)
    return tile::Engine::tensor_core;
  if (plan.blockRows > kTiles[kFewRowTile].rows && canPipeline(plan, target))
    return tile::Engine::warp_specialized;
  bool isBf16 = operandType(plan.lhs.memory, plan.rhs.memory).isBF16();
  // Each warpgroup has 64 rows.
  return target.warpgroups && isBf16 && plan.blockRows >= kTiles[1].rows
             ? tile::Engine::warpgroup
             : tile::Engine::tensor_core;
}

llvm::Error
tessera::emitGpuContraction(const ContractionPlan &plan, ClusterOp cluster,
                            tile::KernelOp kernel, ArrayRef<Value> arguments,
                            ArrayRef<Value> results, const TileTarget &target,
                            OpBuilder &builder) {
  OpBuilder::InsertionGuard guard(builder);
  for (const ContractionOperand *operand : {&plan.lhs, &plan.rhs})
    if (!operand->memory.isBF16() && !operand->memory.isF32())
      return llvm::createStringError(
          "GPU matmuls support bf16 and f32, not " +
          std::string(operand->memory.isF64() ? "f64" : "other types") +
          "; compile for cpu");
  if (plan.quant) {
    kernel.setWarps(tileOf(plan).warps);
    emitQuantizedProduct(plan, cluster, kernel, arguments, results, target,
                         builder);
  } else if (gpuEngine(plan, target) == tile::Engine::warp_specialized) {
    emitPipelinedProduct(plan, cluster, kernel, arguments, results, builder);
  } else {
    GpuContraction(plan, cluster, kernel, arguments, results, builder)
        .emit(target);
  }
  return llvm::Error::success();
}
