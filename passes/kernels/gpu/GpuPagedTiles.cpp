// Tiles and splits of paged attention on a GPU: tiles that fit a block's shared
// memory, and splits of a long context.
#include "passes/kernels/gpu/GpuPaged.h"

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

// Tiles of keys are whole pages or equal parts of one. The largest that fit
// with any tile of queries: prefill and decode programs use the same.
std::optional<PagedTiles> gpu::choosePagedTiles(const PagedShape &shape,
                                                Type element, bool areIntegers,
                                                int64_t sharedBytes) {
  PagedTiles tiles;
  tiles.element = element;
  tiles.areIntegers = areIntegers;
  tiles.dim = paddedColumns(shape.headDim);
  if (areIntegers) // whole 32 bytes
    tiles.dim = llvm::alignTo(tiles.dim, 32);
  if (tiles.dim > (element.isBF16() ? 256 : 128))
    return std::nullopt;
  tiles.queries = std::min<int64_t>(
      kMostQueries,
      16 * llvm::bit_ceil(uint64_t(llvm::divideCeil(shape.rows(), 16))));
  int64_t row = tiles.dim * element.getIntOrFloatBitWidth() / 8;
  // Bytes of a key and its value: two stages, or two of bytes and one of
  // floats.
  int64_t perKey =
      areIntegers ? 2 * row + 4 * (tiles.dim + kScaleBytes) : 4 * row;
  int64_t most = element.isBF16() ? (shape.headDim <= 128 ? 64 : 32)
                                  : (shape.headDim < 128 ? 32 : 16);
  for (tiles.keys = most; tiles.keys >= 16; tiles.keys -= 16)
    if ((tiles.keys % shape.page == 0 || shape.page % tiles.keys == 0) &&
        kMostQueries * row + tiles.keys * perKey <= sharedBytes)
      break;
  if (tiles.keys < 16)
    return std::nullopt;
  int64_t context = shape.page * shape.pages;
  tiles.splitKeys = llvm::alignTo(
      std::max<int64_t>(kLeastSplit, llvm::divideCeil(context, kMostSplits)),
      tiles.unit(shape));
  tiles.splits =
      shape.isDecode() ? llvm::divideCeil(context, tiles.splitKeys) : 1;
  return tiles;
}
