// Shared by attention and its gradient on a GPU: tiles of queries and keys of
// one head in shared memory, and which keys a query sees.
#pragma once
#include "passes/kernels/attention/AttentionTiles.h"
#include "passes/kernels/gpu/GpuTiles.h"

namespace tessera::gpu {

/// Tiles of one kernel. A warp has sixteen rows of every tile, so that rows are
/// reduced within it and a product's result is the next one's left operand.
struct AttentionSizes {
  int64_t queries, keys; ///< of a tile
  int64_t dim;           ///< of the head, padded to whole swizzled rows
};

class GpuAttention {
public:
  GpuAttention(mlir::OpBuilder &builder, mlir::Location loc,
               const AttentionShape &shape, AttentionSizes sizes,
               mlir::Type element)
      : e{builder, loc}, shape(shape), sizes(sizes), element(element) {}

  TileBuilder e;
  const AttentionShape &shape;
  const AttentionSizes sizes;
  const mlir::Type element; ///< of staged operands
  mlir::Value batch;        ///< of the block
  mlir::Value start;        ///< position of query 0; null: 0
  /// The first keys that queries see, i32 [B, T]; null: 0.
  mlir::Value first;
  /// The last keys that queries see at least, i32 [B, T]; null: their own.
  mlir::Value last;
  View firstView, lastView;

  /// Of queries or of keys: heads, and rows of each.
  struct Side {
    int64_t heads, rows;
  };
  Side queries() const { return {shape.heads, shape.tokens}; }
  Side keys() const { return {shape.kvHeads, shape.keys}; }
  /// The head, among those of `own`, of block `block`, and the first row of its
  /// tile of `rows`; sets the batch. The block walks over rows of `other`. The
  /// last tiles come first if those are longest: a long block at the end would
  /// leave the chip idle.
  std::pair<mlir::Value, mlir::Value>
  locate(mlir::Value block, Side own, Side other, int64_t rows, bool lastFirst);
  /// Rows from `token` on of a head, in a buffer seen through `view`; a tile
  /// has `rows` of them.
  Source head(mlir::Value buffer, const View &view, mlir::Value token,
              mlir::Value head, int64_t rows) const;
  /// The head of keys and values that a head of queries reads.
  mlir::Value kvHeadOf(mlir::Value head) const {
    return shape.kvHeads == 1 ? e.index(0)
                              : e.div(head, shape.heads / shape.kvHeads);
  }
  void store(mlir::Value tile, const Source &to) const;
  /// Loads from (or stores to) [batch, head, token]: `size` elements from
  /// `token` on.
  mlir::Value loadVector(mlir::Value buffer, mlir::Value at, int64_t size,
                         mlir::Value token) const;
  void storeVector(mlir::Value slice, mlir::Value buffer, mlir::Value at,
                   mlir::Value token) const;

  Staged stageTiles(int64_t stages, int64_t rows) const {
    return Staged::make(e, stages, rows, sizes.dim, element);
  }
  mlir::Value multiply(mlir::Value lhs, mlir::Value rhs, mlir::Value sum) const;
  mlir::Value zeros(int64_t rows, int64_t columns) const {
    return e.splat(0, {rows, columns});
  }
  void commit() const;
  void wait() const; ///< for all copies

  /// [first, end) of the keys that some query of the tile from `query` on sees;
  /// the first is a multiple of the key tile. And vice versa. With a start it
  /// is one tile at least, whose mask hides all.
  std::pair<mlir::Value, mlir::Value> visibleKeys(mlir::Value query) const;
  std::pair<mlir::Value, mlir::Value> visibleQueries(mlir::Value key) const;
  /// Scores, with `masked` where the key is not visible or missing. They are
  /// [query, key], or [key, query] if `keysInRows`.
  mlir::Value mask(mlir::Value scores, mlir::Value query, mlir::Value key,
                   bool keysInRows, double masked) const;

private:
  mlir::Value positionOf(mlir::Value query) const {
    return start ? e.add(query, start) : query;
  }
  mlir::Value rowOf(const View &view) const;
  mlir::Value keyOf(mlir::Value query, mlir::Value keys,
                    const View &view) const;
  mlir::Value firstKeyOf(mlir::Value query) const {
    return keyOf(query, first, firstView);
  }
  mlir::Value lastKeyOf(mlir::Value query) const;
  mlir::Value
  countQueries(llvm::function_ref<mlir::Value(mlir::Value)> isOne) const;
  std::pair<mlir::Value, mlir::Value> atLeastOne(mlir::Value begin,
                                                 mlir::Value end, int64_t rows,
                                                 int64_t tile) const;
  /// Whether a tile needs a mask; null if none does.
  mlir::Value isCrossed(mlir::Value query, mlir::Value key) const;
  mlir::Value maskTile(mlir::Value scores, mlir::Value query, mlir::Value key,
                       bool keysInRows, double masked) const;
  /// count − row where the last tile is ragged, otherwise null.
  mlir::Value rest(mlir::Value row, int64_t count, int64_t tile) const;
};

/// The tiles whose shared memory fits, the largest first: `stationary` tiles of
/// queries (forward, dQ) or keys (dK, dV) and four of the other kind, which
/// have `most` rows or a half, a quarter, …
llvm::SmallVector<AttentionSizes>
attentionSizes(const AttentionShape &shape, mlir::Type element,
               int64_t stationary, int64_t most, bool keysStationary,
               int64_t sharedBytes);

/// What multiplies in a kernel in which all threads copy and multiply tiles of
/// `rows` rows: a warp has sixteen, a warpgroup 64.
tile::Engine engineOfStaged(int64_t rows, mlir::Type element,
                            const TileTarget &target);

/// "the head dimension 512 is too large …".
llvm::Error attentionTooLarge(const AttentionShape &shape);

} // namespace tessera::gpu
