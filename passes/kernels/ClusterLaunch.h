// The launch of a whole cluster: its buffers, from arguments and results, and
// the loops that skeletons fill with register tiles.
#pragma once
#include "passes/kernels/TileEmitter.h"
#include "passes/kernels/Tiling.h"

namespace tessera {

/// Elements of one block: some ten microseconds of a CPU's core, or enough
/// blocks to fill a GPU.
inline int64_t blockElements(const TileTarget &target) {
  return target.gpu ? 4096 : 16384;
}

/// How a cluster's arguments and results map to a kernel's buffers: arguments
/// that are loaded first, then results that have no accumulating argument.
class ClusterLaunch {
public:
  /// `results` are the types of the launch's results: the cluster's own unless
  /// it is one of several launches. Arguments of the body in `whole` have a
  /// buffer even if no node loads them.
  ClusterLaunch(graph::ClusterOp cluster, const ClusterExpression &expression,
                tile::Skeleton skeleton, mlir::TypeRange results,
                llvm::ArrayRef<mlir::Value> whole = {});

  /// Makes every buffer of so many elements dynamic; the kernel has one dynamic
  /// size.
  void makeFlat(int64_t elements);
  /// The result of another launch, as the kernel's first buffer.
  void addInput(mlir::Value value);
  /// Makes the buffers of all results dynamic.
  void makeResultsDynamic();
  /// A buffer of the kernel for each cluster argument (null where unused) and
  /// each result.
  llvm::SmallVector<mlir::Value> argumentBuffers(tile::KernelOp kernel) const;
  llvm::SmallVector<mlir::Value> resultBuffers(tile::KernelOp kernel) const;
  /// Emits the launch; the values of the cluster's results, in their order.
  llvm::Expected<llvm::SmallVector<mlir::Value>> emit(TilingContext &context);

  LaunchSpec spec;

private:
  void findReuse();
  bool mayReuse(unsigned argument, unsigned result) const;

  mutable graph::ClusterOp cluster;
  const ClusterExpression &expression;
  llvm::SmallVector<mlir::Type> results;
  llvm::SmallVector<mlir::Value> added; ///< buffers before all others
  llvm::SmallVector<std::optional<unsigned>> bufferOfArgument;
  llvm::SmallVector<unsigned> bufferOfResult;
};

/// Emits a launch with `results`, the i-th in the buffer bufferOfResult[i]. Its
/// own results are in the order of buffers; the returned values are in that of
/// `results`.
llvm::Expected<llvm::SmallVector<mlir::Value>>
launchResults(TilingContext &context, graph::ClusterOp cluster,
              const LaunchSpec &spec, llvm::ArrayRef<mlir::Value> inputs,
              mlir::TypeRange results, llvm::ArrayRef<unsigned> bufferOfResult);

/// Emits a launch that computes one value from another, unless an earlier
/// launch has computed the same.
llvm::Expected<mlir::Value> launchOnce(TilingContext &context,
                                       graph::ClusterOp cluster,
                                       const LaunchSpec &spec,
                                       mlir::Value input, mlir::Type result);

/// How many parts of `size` cover `count`.
inline int64_t partsOf(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

/// The widths of the register tiles that cover `count` elements after the full
/// ones of `width`: a multiple of `lanes`, then the remainder.
llvm::SmallVector<int64_t> remainderTiles(int64_t count, int64_t width,
                                          int64_t lanes);
/// Elements of the register tiles of a piece: four registers to hide latencies,
/// fewer if the expression is long enough to hide its own and four copies of it
/// would only be code to compile.
int64_t tileWidth(const TileTarget &target, const ExprPiece &piece);
/// Such tiles whose loads a thread of a GPU has in flight at once; 1 on CPUs.
int64_t tilesAtOnce(const TileTarget &target, const ExprPiece &piece);

/// One tile of `width` elements from `index` on, at a level of its own.
void oneTile(EmitScope &level, unsigned dim, mlir::Value index, int64_t width,
             llvm::function_ref<void(EmitScope &)> body);
/// Covers dimension `dim` of the piece with register tiles: a loop of full ones
/// and peeled remainders.
void forEachTile(EmitScope &level, unsigned dim, const TileTarget &target,
                 llvm::function_ref<void(EmitScope &)> body);
/// The same for `count` elements (an index value) from `begin`, all with the
/// same remainder (`size` mod the tile width).
void forEachTileOfChunk(EmitScope &level, unsigned dim, mlir::Value begin,
                        int64_t chunk, const TileTarget &target,
                        llvm::function_ref<void(EmitScope &)> body);
/// A loop over one element at a time of dimension `dim`.
void forEachIndex(EmitScope &level, unsigned dim,
                  llvm::function_ref<void(EmitScope &)> body);

/// Rows of a piece: some leading dimensions, divided into blocks of equal
/// counts.
struct RowGrid {
  unsigned dims;    ///< leading dimensions that are counted together
  int64_t rows;     ///< their product
  int64_t perBlock; ///< rows of one block
  int64_t blocks() const { return partsOf(rows, perBlock); }
};
/// Sets the indices of the first `grid.dims` dimensions of row `row`.
void setRowIndices(EmitScope &scope, const RowGrid &grid, mlir::Value row);
/// Loops over the rows of block `block` with the indices of the first
/// `grid.dims` dimensions set.
void forEachRow(EmitScope &level, const RowGrid &grid, mlir::Value block,
                llvm::function_ref<void(EmitScope &)> body);

/// Runs `body` for the piece that `block` belongs to, with the block's number
/// within the piece. `ends` are the running sums of the pieces' block counts.
void forPieceOfBlock(
    mlir::OpBuilder &builder, mlir::Location loc, mlir::Value block,
    llvm::ArrayRef<int64_t> ends,
    llvm::function_ref<void(mlir::OpBuilder &, unsigned, mlir::Value)> body);

/// Equal for bodies that compute the same; within one MLIRContext.
std::string bodyKey(graph::ClusterOp cluster);

/// The distinct ops of a cluster, for readers: "mul, add, rsqrt".
std::string summarize(graph::ClusterOp cluster);

/// Whether every load of the piece is dense, at the index along `dim` itself,
/// or of a scalar: then a flat kernel serves every length of that dimension.
bool loadsAreFlat(graph::ClusterOp cluster, const ExprPiece &piece,
                  unsigned dim);

} // namespace tessera
