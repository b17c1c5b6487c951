// Tiles and splits of paged attention on a GPU: tiles that fit a block's shared
// memory, and splits of a long context.
#include "passes/kernels/gpu/GpuAttention.h"
#include "passes/kernels/gpu/GpuPaged.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

// Keys that one block walks over at least, and splits of a context at most,
// since the second launch reads the sums of all.
static constexpr int64_t kLeastSplit = 256, kMostSplits = 32;
// Queries of a block.
static constexpr int64_t kMostQueries = 64;
// Bytes of a key's scale in shared memory.
static constexpr int64_t kScaleBytes = 4;

static bool areIntegers(graph::ClusterOp cluster, const PagedOperands &o) {
  return elementOf(cluster, o.keys).isInteger(8);
}

// Every float type holds int8 exactly.
static Type elementOfProducts(graph::ClusterOp cluster,
                              const PagedOperands &o) {
  Type query = elementOf(cluster, o.query);
  return areIntegers(cluster, o)
             ? query
             : operandType(query, elementOf(cluster, o.keys));
}

static int64_t paddedDim(int64_t headDim, bool areIntegers) {
  int64_t dim = paddedColumns(headDim);
  return areIntegers ? llvm::alignTo(dim, 32) : dim; // whole 32 bytes
}

PagedTiles gpu::pagedTiles(graph::ClusterOp cluster, const PagedPlan &plan) {
  PagedTiles tiles;
  tiles.element = elementOfProducts(cluster, plan.operands);
  tiles.areIntegers = areIntegers(cluster, plan.operands);
  tiles.dim = paddedDim(plan.shape.headDim, tiles.areIntegers);
  tiles.queries = plan.kernel.getQueries();
  tiles.keys = plan.kernel.getKeys();
  tiles.splitKeys = plan.kernel.getSplit();
  tiles.splits = plan.splits();
  return tiles;
}

// Tiles of keys are whole pages or equal parts of one, the largest first. They
// fit with any tile of queries: prefill and decode programs use the same.
static SmallVector<int64_t> keyTiles(const PagedShape &shape, Type element,
                                     bool areIntegers, int64_t sharedBytes) {
  int64_t dim = paddedDim(shape.headDim, areIntegers);
  if (dim > (element.isBF16() ? 256 : 128))
    return {};
  int64_t row = dim * element.getIntOrFloatBitWidth() / 8;
  // Bytes of a key and its value: two stages, or two of bytes and one of
  // floats.
  int64_t perKey = areIntegers ? 2 * row + 4 * (dim + kScaleBytes) : 4 * row;
  int64_t most = element.isBF16() ? (shape.headDim <= 128 ? 64 : 32)
                                  : (shape.headDim < 128 ? 32 : 16);
  SmallVector<int64_t> tiles;
  for (int64_t keys = most; keys >= 16; keys -= 16)
    if ((keys % shape.page == 0 || shape.page % keys == 0) &&
        kMostQueries * row + keys * perKey <= sharedBytes)
      tiles.push_back(keys);
  return tiles;
}

// The first holds all rows that share keys, if it can.
static SmallVector<int64_t> queryTiles(const PagedShape &shape) {
  auto first = std::min<int64_t>(
      kMostQueries,
      16 * llvm::bit_ceil(uint64_t(llvm::divideCeil(shape.rows(), 16))));
  SmallVector<int64_t> tiles{first};
  for (int64_t tile : {64, 32, 16})
    if (tile != first)
      tiles.push_back(tile);
  return tiles;
}

// Splits begin with tiles and pages.
static int64_t splitUnit(const PagedShape &shape, int64_t keyTile) {
  return std::max(shape.page, keyTile);
}

static int64_t splitFor(const PagedShape &shape, int64_t keyTile) {
  int64_t context = shape.context();
  int64_t keys = llvm::alignTo(
      std::max<int64_t>(kLeastSplit, llvm::divideCeil(context, kMostSplits)),
      splitUnit(shape, keyTile));
  return shape.isDecode() && keys < context ? keys : 0;
}

static llvm::Error checkSplit(const PagedShape &shape,
                              tile::AttentionPlanAttr plan) {
  int64_t split = plan.getSplit(), unit = splitUnit(shape, plan.getKeys()),
          context = shape.context();
  std::string given = "split = " + std::to_string(split);
  if (split && !shape.isDecode())
    return refusePlan(given + "; only decode splits keys, expected none");
  if (split && (split % unit || split >= context ||
                llvm::divideCeil(context, split) > kMostSplits))
    return refusePlan(given + " of " + std::to_string(context) +
                      " keys; expected a multiple of " + std::to_string(unit) +
                      " that makes 2 to " + std::to_string(kMostSplits) +
                      " parts, or none");
  return llvm::Error::success();
}

llvm::Expected<tile::AttentionPlanAttr>
tessera::chooseGpuPaged(graph::ClusterOp cluster, const PagedOperands &operands,
                        const PagedShape &shape, const TileTarget &target) {
  Type element = elementOfProducts(cluster, operands);
  SmallVector<tile::AttentionPlanAttr> kernels;
  for (int64_t queries : queryTiles(shape))
    for (int64_t keys : keyTiles(shape, element, areIntegers(cluster, operands),
                                 target.sharedBytes))
      kernels.push_back(tile::AttentionPlanAttr::get(
          cluster.getContext(), engineOfStaged(queries, element, target),
          queries, keys, splitFor(shape, keys), /*ping_pong=*/false));
  if (kernels.empty())
    return llvm::createStringError(
        llvm::formatv("attention over pages of {0} keys and heads of {1} "
                      "dimensions does not fit a block: heads have at most 256 "
                      "dimensions in bf16 and 128 in f32, and a page is best a "
                      "power of two (inference.page); or compile for cpu",
                      shape.page, shape.headDim));
  llvm::Expected<AttentionChoice> choice =
      takeAttention(cluster, kernels, /*splitsKeys=*/true);
  if (!choice)
    return choice.takeError();
  if (llvm::Error error = checkSplit(shape, choice->kernel))
    return std::move(error);
  return choice->kernel;
}
