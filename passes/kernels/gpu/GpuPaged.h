// What the two launches of attention over pages share on a GPU.
#pragma once
#include "passes/kernels/attention/PagedAttention.h"
#include "passes/kernels/gpu/GpuTiles.h"

namespace tessera::gpu {

/// How a paged attention is divided.
struct PagedTiles {
  int64_t queries, keys; ///< rows of tiles
  int64_t dim;           ///< of the head, padded to whole swizzled rows
  int64_t splitKeys;     ///< of one block; all of them where there is one split
  int64_t splits;
  mlir::Type element; ///< of products
  bool areIntegers;   ///< keys and values, in the cache

  int64_t queryTiles(const PagedShape &shape) const {
    return llvm::divideCeil(shape.rows(), queries);
  }
  /// Keys that both tiles and pages begin at multiples of.
  int64_t unit(const PagedShape &shape) const {
    return std::max(shape.page, keys);
  }
  /// Rows of a tile of keys that lie in one page.
  int64_t pieceRows(const PagedShape &shape) const {
    return std::min(shape.page, keys);
  }
};

/// Null where a block's shared memory holds no tile of such heads and pages.
std::optional<PagedTiles> choosePagedTiles(const PagedShape &shape,
                                           mlir::Type element, bool areIntegers,
                                           int64_t sharedBytes);

/// Tiles of keys, or of values. What is copied into one of the two stages while
/// the other one is used has landed after a tile.wait.
class PagedStages {
public:
  static PagedStages make(const TileBuilder &e, const PagedTiles &tiles);
  /// Starts copies of `count` rows to row `first` of a stage: of the numbers,
  /// and, if they are integers, of their scales, whose rows alone count.
  void copyRows(const TileBuilder &e, mlir::Value stage, int64_t first,
                int64_t count, const Source &from) const;
  void copyScales(const TileBuilder &e, mlir::Value stage, int64_t first,
                  int64_t count, const Source &from) const;
  /// Integers that have landed become what products read, which is one tile:
  /// theirs before must be over. It is there after a tile.wait.
  void extend(const TileBuilder &e, mlir::Value stage) const;
  /// The operand of a product: keys × dimensions, or turned.
  mlir::Value load(const TileBuilder &e, mlir::Value stage) const {
    return tile.load(e, stageOf(e, stage));
  }
  mlir::Value loadTransposed(const TileBuilder &e, mlir::Value stage) const {
    return tile.loadTransposed(e, stageOf(e, stage));
  }
  /// [rows, keys] times the scales of a stage's keys; as it is without.
  mlir::Value scale(const TileBuilder &e, mlir::Value rows,
                    mlir::Value stage) const;

private:
  mlir::Value stageOf(const TileBuilder &e, mlir::Value stage) const {
    return bytes ? e.index(0) : stage;
  }
  Staged tile;
  std::optional<Staged> bytes; ///< int8, as pages hold it
  mlir::Value scales;          ///< f32 [stages, keys]
};

/// The launch that puts together what all splits of the keys came to: of each
/// row the maximum, the sum and the output times the sum, [batch, owners,
/// splits, rows] and, for the output, head_dim behind.
llvm::Expected<llvm::SmallVector<mlir::Value>>
launchPagedCombine(graph::ClusterOp cluster, const View &output,
                   const PagedShape &shape, const PagedTiles &tiles,
                   mlir::ValueRange partials, TilingContext &context);

} // namespace tessera::gpu
