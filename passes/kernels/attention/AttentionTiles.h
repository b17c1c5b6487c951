// Shared by the attention skeletons: matrices inside four-dimensional tensors
// and products of them by register tiles.
#pragma once
#include "passes/kernels/KernelOps.h"
#include "passes/kernels/Tiling.h"
#include "llvm/Support/Error.h"

namespace tessera {

/// A matrix inside a memref: two of its dimensions, the others fixed.
struct Matrix {
  mlir::Value memory;
  llvm::SmallVector<mlir::Value> origin; ///< index of element (0, 0)
  unsigned rowDim, colDim;

  Matrix transposed() const { return {memory, origin, colDim, rowDim}; }
};

/// A score of weight zero, and the initial maximum, which is larger, so that
/// queries that have seen no key yet give it no weight. Powers of two, so that
/// scaling them is exact and the fused c × score − c × maximum of these two
/// does not round numbers of this size, whose exp2 may be infinite.
inline constexpr double kMaskedScore = -0x1p100, kLeastMaximum = -0x1p99;

/// The sizes of one attention, and its mask.
struct AttentionShape {
  int64_t batch, tokens, heads, kvHeads, headDim;
  int64_t keys; ///< of a sequence, as `tokens` are its queries
  double scale;
  bool causal;
  int64_t window;       ///< 0: none
  bool hasStart;        ///< queries start at a position that kernels read
  bool hasFirst;        ///< and see no keys before one that kernels read
  bool hasLast = false; ///< or see all up to one that kernels read, at least
  double cap = 0;       ///< of scaled scores, as graph.attention; 0: none
  /// Of a kernel for CPUs: a block's queries, and keys multiplied at once.
  int64_t queryTile = 0, keyTile = 0;
  int64_t queryTiles() const { return llvm::divideCeil(tokens, queryTile); }
  void take(tile::AttentionPlanAttr kernel) {
    queryTile = kernel.getQueries();
    keyTile = kernel.getKeys();
  }
};

/// Columns of a matrix: `all` of them or, in groups of registers, as many as
/// hold the first `used`.
struct Columns {
  int64_t all;
  mlir::Value used;
  Columns(int64_t all, mlir::Value used = {}) : all(all), used(used) {}
};

/// Emits into one kernel, all in f32; bf16 is converted when loaded and stored.
class AttentionEmitter : public KernelOps {
public:
  AttentionEmitter(mlir::OpBuilder &builder, mlir::Location loc,
                   const TileTarget &target, const AttentionShape &shape)
      : KernelOps(builder, loc), target(target), shape(shape) {}

  const TileTarget &target;
  const AttentionShape &shape;

  mlir::Value isLess(mlir::Value x, mlir::Value y); ///< as signed numbers
  mlir::Value spread(mlir::Value scalar, llvm::ArrayRef<int64_t> sizes);

  // Memory. Values are f32 for all element types.
  mlir::Value alloc(llvm::ArrayRef<int64_t> sizes);
  Matrix matrix(mlir::Value memory); ///< a two-dimensional memref as it is
  llvm::SmallVector<mlir::Value> at(const Matrix &m, mlir::Value row,
                                    mlir::Value col);
  mlir::Value load(const Matrix &m, mlir::Value row, mlir::Value col,
                   int64_t rows, int64_t cols);
  void store(mlir::Value tile, const Matrix &m, mlir::Value row,
             mlir::Value col);
  /// A run of `cols` elements of one row, as a rank-1 tile.
  mlir::Value loadRow(const Matrix &m, mlir::Value row, mlir::Value col,
                      int64_t cols);
  /// Column 0 of a row, as a scalar.
  mlir::Value loadNumber(const Matrix &m, mlir::Value row);
  void storeRow(mlir::Value tile, const Matrix &m, mlir::Value row,
                mlir::Value col);
  mlir::Value loadVector(mlir::Value memory, mlir::Value at, int64_t size,
                         mlir::Value bound = {});
  void storeVector(mlir::Value tile, mlir::Value memory, mlir::Value at,
                   mlir::Value bound = {});

  // Loops.
  /// Starts at the index `value` and replaces it by `next` of it while `holds`
  /// of it is true; returns the first for which it is false.
  mlir::Value whileTrue(mlir::Value value,
                        llvm::function_ref<mlir::Value(mlir::Value)> holds,
                        llvm::function_ref<mlir::Value(mlir::Value)> next);
  /// Runs of `step` rows while they are whole, then the rest of `count`, which
  /// is a multiple of step or ends a sequence of `total` rows.
  void forRows(mlir::Value count, int64_t step, int64_t total,
               llvm::function_ref<void(mlir::Value, int64_t)> body);
  /// Column ranges of at most `width`.
  void forColumns(Columns cols, int64_t width,
                  llvm::function_ref<void(mlir::Value, int64_t)> body);

  /// c[rows × cols] = a[rows × depth] b[depth × cols] (+ c where `accumulate`);
  /// rows end whole tiles or a sequence of `total`. With `lastRow`, which may
  /// be negative, register tiles begin there at the latest, and compute some
  /// rows again.
  void multiply(const Matrix &a, const Matrix &bMatrix, const Matrix &c,
                mlir::Value rows, int64_t total, Columns cols,
                mlir::Value depth, bool accumulate, mlir::Value lastRow = {});
  /// Every element of `m`, [rows × cols] with static columns, to zero.
  void fillZero(const Matrix &m, mlir::Value rows, int64_t cols);
  /// Copies rows, converting to f32 (or from it, into bf16 memory); row r times
  /// the number r of the column `scales`, if any.
  void copyRows(const Matrix &from, const Matrix &to, mlir::Value rows,
                int64_t cols, const Matrix *scales = nullptr);
  /// to[c][r] = from[r][c] for r < rows, as `multiply` has them.
  void copyTransposed(const Matrix &from, const Matrix &to, mlir::Value rows,
                      int64_t total, int64_t cols);

  /// The columns of scores[key][query] of so many queries: a whole tile's,
  /// unless they are a run, which is often shorter.
  Columns queryColumns(mlir::Value queries) const {
    return {shape.queryTile, shape.hasFirst ? queries : mlir::Value()};
  }
  /// Columns that are computed together, of all that `queryColumns` has.
  void forQueries(mlir::Value queries,
                  llvm::function_ref<void(mlir::Value, int64_t)> body);
  /// Rows or columns that products of `queries` queries write: those of a tile
  /// or, of a run, of whole register tiles.
  mlir::Value computedQueries(mlir::Value queries);
  /// Of `width` columns from `col` on, those of queries.
  mlir::Value remainingQueries(mlir::Value queries, mlir::Value col,
                               int64_t width);
  /// Bounds scores[key][query], which are still to be scaled.
  void capScores(const Matrix &scores, mlir::Value keys, mlir::Value queries);

  /// Register tile of the products.
  int64_t microRows() const { return target.lanes >= 16 ? 8 : 4; }
  int64_t microCols() const { return 2 * target.lanes; }

  /// `count` and as many more as make whole register tiles.
  mlir::Value wholeRows(mlir::Value count) {
    return roundUp(count, microRows());
  }
  mlir::Value roundUp(mlir::Value count, int64_t step);

private:
  void forUsedColumns(Columns cols, int64_t width,
                      llvm::function_ref<void(mlir::Value, int64_t)> body);
  mlir::Value toF32(mlir::Value tile);
};

/// An attention op inside a cluster: where its operands come from.
struct AttentionOperand {
  unsigned argument; ///< of the cluster
  View view;
};
/// The cap of an attention's scores; 0: none.
template <typename Op> double scoreCapOf(Op op) {
  std::optional<llvm::APFloat> cap = op.getCap();
  return cap ? cap->convertToDouble() : 0;
}

/// The sizes of an attention or its gradient.
template <typename Op> AttentionShape attentionShapeOf(Op op) {
  llvm::ArrayRef<int64_t> query = graph::tensorType(op.getQuery()).getShape(),
                          key = graph::tensorType(op.getKey()).getShape();
  AttentionShape shape{query[0],
                       query[1],
                       query[2],
                       key[2],
                       query[3],
                       key[1],
                       op.getScale().convertToDouble(),
                       op.getCausal(),
                       static_cast<int64_t>(op.getWindow().value_or(0)),
                       op.getStart() != nullptr,
                       op.getFirst() != nullptr,
                       op.getLast() != nullptr};
  shape.cap = scoreCapOf(op);
  return shape;
}

/// The start of the queries: the argument of the cluster, i32[].
struct AttentionStart {
  unsigned argument = 0;
  bool isThere = false;
};

/// An attention cluster.
struct ForwardOperands {
  AttentionOperand query, key, value;
  AttentionStart start;
  std::optional<AttentionOperand> first, last; ///< [B, T]
  std::optional<AttentionOperand> sinks;       ///< [H]
  View output; ///< of the kernel's result buffer, [B, T, H, D]; base unused
  unsigned outputIndex; ///< results of the cluster
  int lseIndex;         ///< negative: unused
};

/// The destination of one gradient: a strided part of a result of the cluster.
struct GradientPlace {
  unsigned result;
  View view; ///< [B, T, heads, D]; base unused
};

/// An attention_grad cluster.
struct BackwardOperands {
  AttentionOperand query, key, value, output, lse, cotangent;
  AttentionStart start;
  std::optional<AttentionOperand> first, last; ///< [B, T]
  GradientPlace dQuery, dKey, dValue;
};

llvm::Expected<AttentionOperand> attentionOperand(mlir::Operation *op,
                                                  mlir::Value value);
/// `start` is null where queries start at key 0.
AttentionStart attentionStart(mlir::Value start);
/// Null where `value` is null: the mask has no first keys, or there are no
/// sinks.
llvm::Expected<std::optional<AttentionOperand>>
optionalOperand(mlir::Operation *op, mlir::Value value);
/// The number in a buffer of one i32, as an index.
mlir::Value loadStart(mlir::OpBuilder &b, mlir::Location loc,
                      mlir::Value buffer);

/// The [tokens × head_dim] matrix of one head in a buffer seen through `view`.
Matrix headMatrix(AttentionEmitter &e, mlir::Value buffer, const View &view,
                  mlir::Value batch, mlir::Value token, mlir::Value head);

/// A launch with one buffer for each cluster argument and then each result.
LaunchSpec attentionLaunch(graph::ClusterOp cluster, tile::Skeleton skeleton,
                           int64_t blocks);

} // namespace tessera
