// What the two launches of attention over pages share on a GPU.
#pragma once
#include "passes/tiling/PagedAttention.h"

namespace tessera::gpu {

/// How a paged attention is divided.
struct PagedTiles {
  int64_t queries, keys; ///< rows of tiles
  int64_t dim;           ///< of the head, padded to whole swizzled rows
  int64_t splitKeys;     ///< of one block; all of them where there is one split
  int64_t splits;
  mlir::Type element;

  int64_t queryTiles(const PagedShape &shape) const {
    return llvm::divideCeil(shape.rows(), queries);
  }
};

/// The launch that puts together what all splits of the keys came to: of each
/// row the maximum, the sum and the output times the sum, [batch, owners,
/// splits, rows] and, for the output, head_dim behind.
llvm::Expected<llvm::SmallVector<mlir::Value>>
launchPagedCombine(graph::ClusterOp cluster, const View &output,
                   const PagedShape &shape, const PagedTiles &tiles,
                   mlir::ValueRange partials, TilingContext &context);

} // namespace tessera::gpu
