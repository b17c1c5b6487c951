// Shared by the two launches of paged attention on a GPU.
#pragma once
#include "passes/kernels/attention/AttentionPlan.h"
#include "passes/kernels/gpu/GpuTiles.h"

namespace tessera::gpu {

/// The tiles and splits of a paged attention.
struct PagedTiles {
  int64_t queries, keys; ///< rows of tiles
  int64_t dim;           ///< of the head, padded to whole swizzled rows
  int64_t splitKeys;     ///< of one block; 0: all of them
  int64_t splits;
  mlir::Type element; ///< of products
  bool areIntegers;   ///< keys and values, in the cache

  int64_t queryTiles(const PagedShape &shape) const {
    return llvm::divideCeil(shape.rows(), queries);
  }
  /// Both tiles and pages begin at multiples of this number of keys.
  int64_t unit(const PagedShape &shape) const {
    return std::max(shape.page, keys);
  }
  /// Rows of a tile of keys in one page.
  int64_t pieceRows(const PagedShape &shape) const {
    return std::min(shape.page, keys);
  }
};

PagedTiles pagedTiles(graph::ClusterOp cluster, const PagedPlan &plan);

/// Tiles of keys, or of values, in two stages: one is filled while the other is
/// read. A stage is complete after a tile.wait.
class PagedStages {
public:
  static PagedStages make(const TileBuilder &e, const PagedTiles &tiles);
  /// Starts copies of `count` rows to row `first` of a stage: of the elements
  /// and, for integers, of their scales.
  void copyRows(const TileBuilder &e, mlir::Value stage, int64_t first,
                int64_t count, const Source &from) const;
  void copyScales(const TileBuilder &e, mlir::Value stage, int64_t first,
                  int64_t count, const Source &from) const;
  /// Extends integers that have arrived to the operands' type. There is one
  /// such tile, so its previous readers must be done. It is complete after a
  /// tile.wait.
  void extend(const TileBuilder &e, mlir::Value stage) const;
  /// The operand of a product: keys × dimensions, or transposed.
  mlir::Value load(const TileBuilder &e, mlir::Value stage) const {
    return tile.load(e, stageOf(e, stage));
  }
  mlir::Value loadTransposed(const TileBuilder &e, mlir::Value stage) const {
    return tile.loadTransposed(e, stageOf(e, stage));
  }
  /// [rows, keys] times the scales of a stage's keys; unchanged without scales.
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

/// The second launch of flash-decoding, which combines the results of all
/// splits of the keys: the maximum and the sum of each row, [batch, owners,
/// splits, rows], and the output times the sum, with head_dim appended.
llvm::Expected<llvm::SmallVector<mlir::Value>>
launchPagedCombine(graph::ClusterOp cluster, const View &output,
                   const PagedShape &shape, const PagedTiles &tiles,
                   mlir::ValueRange partials, TilingContext &context);

} // namespace tessera::gpu
