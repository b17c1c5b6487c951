// Shared by the skeletons for GPUs: index arithmetic, operands staged in shared
// memory, and loops over their stages.
#pragma once
#include "passes/kernels/KernelOps.h"
#include "passes/kernels/Tiling.h"

namespace tessera::gpu {

/// Rows of a consumer warpgroup's part of a tile.
inline constexpr int64_t kRowsOfConsumer = 64;
/// The alignment that TMA requires of the start of a view of bf16 and of its
/// strides, in elements: 16 bytes.
inline constexpr int64_t kBoxAlignment = 8;
/// The least number of multiplications (some microseconds) of a kernel with
/// variants: below it timing would take longer than it saves.
inline constexpr int64_t kLeastProducts = 1 << 27;

/// Emits tile ops, too.
struct TileBuilder : KernelOps {
  using KernelOps::KernelOps;

  /// A vector of one dimension broadcast over `shape`, as its dimension `dim`.
  mlir::Value spread(mlir::Value slice, llvm::ArrayRef<int64_t> shape,
                     int64_t dim) const;
  /// The number in every element.
  mlir::Value spreadNumber(mlir::Value number,
                           llvm::ArrayRef<int64_t> shape) const;
  mlir::Value reduce(mlir::Value tile, tile::ReduceKind kind,
                     int64_t dim) const;
  /// The number (an index) as an i32 in every element.
  mlir::Value spreadIndex(mlir::Value number,
                          llvm::ArrayRef<int64_t> shape) const;
  mlir::Value iota(mlir::Value start, llvm::ArrayRef<int64_t> shape,
                   int64_t dim) const;
  mlir::Value toFloat(mlir::Value tile) const; ///< bf16 → f32
  mlir::Value toElement(mlir::Value tile, mlir::Type element) const;
  /// The remainders and quotient of `rest` by counts, the first fastest.
  llvm::SmallVector<mlir::Value> unravel(mlir::Value rest,
                                         llvm::ArrayRef<int64_t> counts) const;
};

/// The running softmax of each row of scores after some columns, and the
/// weights of the last tile (Milakov & Gimelshein 2018).
struct Softmax {
  mlir::Value maximum, sum; ///< so far
  mlir::Value
      rescale; ///< of sums over earlier columns; null for the first tile
  mlir::Value weights; ///< exp(scale (score − maximum)), like the scores
};
/// The state before any key of queries with `sinks`, a vector: a sink is a
/// score that comes first, of a value of zero.
Softmax softmaxOfSinks(const TileBuilder &e, mlir::Value sinks, double scale);
/// The state before the tile is `maximum` and `sum`, null for the first one.
Softmax softmaxOf(const TileBuilder &e, mlir::Value scores, double scale,
                  mlir::Value maximum, mlir::Value sum);
/// Each row of a tile times its factor.
mlir::Value scaleRows(const TileBuilder &e, mlir::Value tile,
                      mlir::Value factor);

/// A box of global memory: two dimensions of `memory`, the others fixed.
/// Dimension −1: the memory repeats along it.
struct Source {
  mlir::Value memory;
  llvm::SmallVector<mlir::Value> indices; ///< of the box's first element
  int64_t rowDim, columnDim;
  /// Valid elements from the first one on; null if the box is whole.
  mlir::Value rows, columns;

  Source transposed() const {
    return {memory, indices, columnDim, rowDim, columns, rows};
  }
};

/// Tiles of rows × columns in shared memory, swizzled; the operands of tensor
/// cores.
struct Staged {
  mlir::Value memory; ///< [stages, rows, columns]
  int64_t rows, columns;

  static Staged make(const TileBuilder &e, int64_t stages, int64_t rows,
                     int64_t columns, mlir::Type element);
  /// Starts filling stage `stage` from a box with the rows and columns of the
  /// tile.
  void copy(const TileBuilder &e, mlir::Value stage, const Source &from) const {
    copyRows(e, stage, 0, rows, from);
  }
  /// The same for `count` rows from `first` on.
  void copyRows(const TileBuilder &e, mlir::Value stage, int64_t first,
                int64_t count, const Source &from) const;
  /// The operand in a stage: rows × columns, or columns × rows.
  mlir::Value load(const TileBuilder &e, mlir::Value stage) const;
  mlir::Value loadTransposed(const TileBuilder &e, mlir::Value stage) const;
};

/// A sum over steps by all threads of a block: operands of a step are copied to
/// a ring of stages while the oldest stage is multiplied (software pipelining).
struct StageRing {
  int64_t stages;
  int64_t steps;        ///< at most
  mlir::Value ownSteps; ///< how many, if that is data; null otherwise
  bool fillsInLoop;     ///< the first stages: there are as many steps
  llvm::function_ref<void(mlir::Value step)> copy; ///< starts the copies
  /// The sum and a stage's product.
  llvm::function_ref<mlir::Value(mlir::Value stage, mlir::Value sum)> add;
};
/// From zeros; the sum is of type `type`.
mlir::Value sumOverSteps(const TileBuilder &e, const StageRing &ring,
                         mlir::VectorType type);

/// Padded columns of a tile: whole fragments of a product, and whole 32 bytes
/// to be swizzled.
int64_t paddedColumns(int64_t columns);
/// The type in which such operands are multiplied: bf16 if both are, otherwise
/// f32.
mlir::Type operandType(mlir::Type lhs, mlir::Type rhs);

} // namespace tessera::gpu
