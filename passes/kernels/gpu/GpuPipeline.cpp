// Warp-specialized matmuls of bf16 for GPUs with TMA and wgmma (sm_90a). One
// thread, the producer, copies chunks of both operands to a ring of stages
// (software pipelining). One or two warpgroups, the consumers, have 64 rows of
// the block's tile each, keep one wgmma in flight while they start the next,
// and compute the epilogue on their accumulators. TMA fills elements outside
// the operands with zeros, so ragged edges need no code. Persistent CTAs loop
// over tiles if a grid of 128-row tiles has more of them than the GPU has SMs.
#include "passes/kernels/gpu/GpuContraction.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

namespace {

/// A block's tile, and the speed of an SM with it, relative to the best tile:
/// an estimate from the traffic of operands through shared memory, not
/// measured.
struct PipelinedTile {
  int64_t rows, columns;
  double speed;
};

constexpr PipelinedTile kTiles[] = {
    {128, 256, 1}, {128, 128, 0.85}, {64, 128, 0.65}, {64, 64, 0.5}};
// Terms of a chunk of the sum: a row of 128 bytes, the widest swizzle.
constexpr int64_t kChunk = 64;
// Shared memory for stages of a block that is alone on its SM, and of one that
// shares it.
constexpr int64_t kStageBytesAlone = 200 << 10, kStageBytesOfTwo = 100 << 10;
// Registers of a thread. An SM has 65536.
constexpr int64_t kProducerRegisters = 40, kConsumerRegisters = 232;
// The limit of tensor maps.
constexpr int64_t kMaxDims = 5;

class PipelinedProduct : GpuProduct {
public:
  using GpuProduct::GpuProduct;
  void emit();

private:
  void forTiles(llvm::function_ref<void()> body);
  void produce();
  Value start(Value sum);
  Value consume();

  Value ring;
};

} // namespace

//===--- producer and consumers -------------------------------------------===//

// Persistent CTAs: while consumers compute one tile's epilogue, the producer
// fills the next one's stages.
void PipelinedProduct::forTiles(llvm::function_ref<void()> body) {
  if (!plan.persistentBlocks)
    return body();
  e.forRange(kernel.getBlockNumber(), e.index(plan.tiles()),
             plan.persistentBlocks, {},
             [&](Value number, ValueRange) -> SmallVector<Value> {
               locate(number);
               body();
               return {};
             });
}

void PipelinedProduct::produce() {
  e.forRange(
      e.index(0), e.index(steps), 1, {},
      [&](Value step, ValueRange) -> SmallVector<Value> {
        int64_t bytes = 2 * kChunk * (plan.blockRows + plan.blockColumns);
        Value stage =
            b.create<tile::AcquireOp>(e.loc, b.getIndexType(), ring, bytes);
        for (const ProductSide *side : {&lhs, &rhs}) {
          Source from = chunkOf(*side, step);
          b.create<tile::BulkCopyOp>(
              e.loc, from.memory, from.indices, side->staged.memory, stage,
              ring, ArrayRef<int64_t>{from.rowDim, from.columnDim});
        }
        return {};
      });
}

// Starts the product of the next stage.
Value PipelinedProduct::start(Value sum) {
  Value stage = b.create<tile::AwaitOp>(e.loc, b.getIndexType(), ring);
  return b.create<tile::MmaAsyncOp>(e.loc, sum.getType(), operand(lhs, stage),
                                    operand(rhs, stage), sum);
}

// The last product is outside of the loop: ptxas takes a sum for complete at
// the first wait after its product, however many may stay in flight, and moves
// reads of the sum up to there.
Value PipelinedProduct::consume() {
  Value zeros = e.splat(0, {plan.blockRows, plan.blockColumns});
  auto sums = e.forRange(e.index(0), e.index(steps - 1), 1, zeros,
                         [&](Value, ValueRange sum) -> SmallVector<Value> {
                           Value next = start(sum[0]);
                           b.create<tile::ReleaseOp>(e.loc, ring);
                           return {next};
                         });
  Value sum = b.create<tile::MmaWaitOp>(e.loc, zeros.getType(), start(sums[0]));
  if (plan.persistentBlocks)
    b.create<tile::ReleaseOp>(e.loc, ring, /*last=*/true);
  return sum;
}

void PipelinedProduct::emit() {
  element = b.getBF16Type();
  chooseChunks(kChunk);
  int64_t consumers = plan.blockRows / kRowsOfConsumer;
  bool isAlone = consumers > 1;
  kernel.setWarps(ArrayRef<int64_t>{4 * consumers, 1});
  int64_t room = (isAlone ? kStageBytesAlone : kStageBytesOfTwo) /
                 (2 * kChunk * (plan.blockRows + plan.blockColumns));
  int64_t stages =
      plan.persistentBlocks ? room : std::clamp<int64_t>(steps, 2, room);
  makeSides(stages);
  ring = b.create<tile::MakeRingOp>(
      e.loc, tile::RingType::get(b.getContext(), stages, consumers));
  if (!plan.persistentBlocks)
    locate(kernel.getBlockNumber());
  // Loop-invariant values of the epilogue are emitted before the
  // warp-specialized code.
  Operation *mark = e.index(0).getDefiningOp();
  EmitScope top(epilogue, b);
  top.builder.setInsertionPoint(mark);
  auto roles = b.create<tile::WarpSpecializeOp>(
      e.loc,
      isAlone ? b.getDenseI64ArrayAttr({kProducerRegisters, kConsumerRegisters})
              : DenseI64ArrayAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&roles.getProducer().emplaceBlock());
  forTiles([&] {
    if (isOwned)
      e.ifTrue(isOwned, [&] { produce(); });
    else
      produce();
  });
  b.setInsertionPointToStart(&roles.getConsumers().emplaceBlock());
  forTiles([&] { emitTile([&] { return consume(); }, top); });
  describeGemm();
}

//===--- choices ----------------------------------------------------------===//

// Whether a tensor map can describe an operand: dimensions along the tile and
// the sum, one of them contiguous, and all others.
static bool hasBoxes(const ContractionPlan &plan, bool isLeft) {
  auto strideOf = [&](const ContractionDim &dim) {
    return isLeft ? dim.lhs : dim.rhs;
  };
  const ContractionOperand &operand = isLeft ? plan.lhs : plan.rhs;
  int64_t tile = strideOf(isLeft ? plan.rowDim() : plan.columnDim()),
          sum = strideOf(plan.sum);
  if (!operand.memory.isBF16() || operand.offset % kBoxAlignment ||
      (tile == 1) == (sum == 1))
    return false;
  auto isAligned = [](int64_t stride) {
    return stride > 0 && stride % kBoxAlignment == 0;
  };
  int64_t dims = 2;
  bool fits = isAligned(tile == 1 ? sum : tile);
  auto add = [&](const ContractionDim &dim) {
    if (int64_t stride = strideOf(dim)) {
      ++dims;
      fits &= isAligned(stride);
    }
  };
  if (plan.groups)
    add({plan.groups->count, 0, plan.groups->matrix});
  for (unsigned dim : plan.outer)
    add(plan.dims[dim]);
  for (const ContractionDim &dim : plan.outerSums)
    add(dim);
  return fits && dims <= kMaxDims;
}

bool gpu::canPipeline(const ContractionPlan &plan, const TileTarget &target) {
  // A box would add rows of the next group to the sum.
  bool sumsOfGroups = plan.groups && plan.groups->ofSum;
  return target.warpgroups && !plan.quant && !sumsOfGroups && plan.row &&
         plan.column && hasBoxes(plan, true) && hasBoxes(plan, false);
}

// Tiles (of kTiles) by the time of the product: rounds of blocks, in sums of
// one SM.
static SmallVector<std::pair<double, size_t>>
rankTiles(const ContractionPlan &plan, int64_t multiprocessors) {
  SmallVector<std::pair<double, size_t>> ranked;
  for (auto [i, tile] : llvm::enumerate(kTiles)) {
    int64_t blocks = plan.outerCount() *
                     partsOf(plan.typicalRows(), tile.rows) *
                     partsOf(plan.columnDim().size, tile.columns);
    ranked.emplace_back(static_cast<double>(partsOf(blocks, multiprocessors) *
                                            tile.rows * tile.columns) /
                            tile.speed,
                        i);
  }
  llvm::sort(ranked); // the first of equals
  return ranked;
}

static void take(ContractionPlan &plan, const PipelinedTile &tile,
                 int64_t multiprocessors) {
  plan.blockRows = tile.rows;
  plan.blockColumns = tile.columns;
  plan.persistentBlocks =
      plan.blockRows > kRowsOfConsumer && plan.tiles() > multiprocessors
          ? multiprocessors
          : 0;
}

void gpu::choosePipelinedGrid(ContractionPlan &plan, const TileTarget &target) {
  take(plan, kTiles[rankTiles(plan, target.multiprocessors).front().second],
       target.multiprocessors);
}

std::vector<ContractionPlan>
gpu::otherPipelinedGrids(const ContractionPlan &plan, const TileTarget &target,
                         bool all) {
  constexpr size_t kMost = 2;
  constexpr double kSlower = 1.5; // than the best: the estimate is rough
  std::vector<ContractionPlan> others;
  auto ranked = rankTiles(plan, target.multiprocessors);
  for (auto [time, tile] : llvm::drop_begin(ranked))
    if (all ||
        (others.size() < kMost && time <= kSlower * ranked.front().first)) {
      others.push_back(plan);
      take(others.back(), kTiles[tile], target.multiprocessors);
    }
  return others;
}

void gpu::emitPipelinedProduct(const ContractionPlan &plan,
                               graph::ClusterOp cluster, tile::KernelOp kernel,
                               ArrayRef<Value> arguments,
                               ArrayRef<Value> results, OpBuilder &builder) {
  PipelinedProduct(plan, cluster, kernel, arguments, results, builder).emit();
}
