// What the parts of a contraction's kernel on a CPU share: the choices for the
// target, the indices of the block and of the chunk, loops over their parts.
#pragma once
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/KernelOps.h"
#include "passes/kernels/TileEmitter.h"
#include "passes/kernels/contraction/Contraction.h"

namespace tessera {

/// How a target computes a block.
struct ContractionTiles {
  mlir::Type compute, accumulate; ///< element types of operands and sums
  bool pairs = false;             ///< columns are staged for products of pairs
  bool matrices = false;          ///< in matrix registers
  bool transposed = false;        ///< there columns of the result are rows
  bool readsPacked = false;       ///< rows come from the launch packed_rows

  bool stagesRows = false, stagesColumns = false;
  bool rowsSumFirst = false; ///< staged as [k, row] rather than [row, k]
  /// Quantized columns are staged panel by panel, each interleaved with the
  /// products of the previous one.
  bool interleaves = false;

  int64_t height, width;              ///< the largest register tile
  int64_t groupRows;                  ///< rows that are staged at a time
  int64_t kStep;                      ///< products in each iteration
  int64_t chunk, chunksOfSum, chunks; ///< of k: length, of `sum`, of all sums
};
ContractionTiles chooseTiles(const ContractionPlan &plan,
                             const TileTarget &target);

/// A register tile: its first row within the group of rows, its panel.
struct TilePlace {
  int64_t rows, columns;
  mlir::Value row, panel;
};

/// Control flow with static sizes, and accesses without bounds.
struct ContractionOps : KernelOps {
  using KernelOps::KernelOps;
  using RowsBody = llvm::function_ref<void(mlir::Value, int64_t)>;

  mlir::Value isEqual(mlir::Value x, int64_t y) const;
  /// `y` if `condition` is null.
  mlir::Value select(mlir::Value condition, int64_t x, int64_t y) const;
  void forEach(mlir::Value count,
               llvm::function_ref<void(mlir::Value)> body) const;
  void forEach(int64_t count, llvm::function_ref<void(mlir::Value)> body) const;
  void ifElse(mlir::Value condition, llvm::function_ref<void()> then,
              llvm::function_ref<void()> otherwise = {}) const;
  /// `then` unless `condition` is false; null is true.
  mlir::Value chooseValue(mlir::Value condition, mlir::Type type,
                          llvm::function_ref<mlir::Value()> then,
                          llvm::function_ref<mlir::Value()> otherwise) const;
  /// Divides `whole`, or `last` if `isLast`, into parts of `step` and a rest:
  /// body(i, length) with the part's number.
  void forEachPart(mlir::Value isLast, int64_t whole, int64_t last,
                   int64_t step, RowsBody body) const;
  /// Divides `count`, known at run time, into parts of these sizes, the largest
  /// first and the last 1: body(start, length).
  void forEachPartOf(mlir::Value count, llvm::ArrayRef<int64_t> sizes,
                     RowsBody body) const;

  mlir::Value zeros(mlir::VectorType type) const;
  mlir::Value allocate(llvm::ArrayRef<int64_t> shape, mlir::Type element,
                       tile::Layout layout = tile::Layout::rows) const;
  mlir::Value load(mlir::VectorType type, mlir::Value memory,
                   llvm::ArrayRef<mlir::Value> indices,
                   llvm::ArrayRef<int64_t> along) const;
  void store(mlir::Value value, mlir::Value memory,
             llvm::ArrayRef<mlir::Value> indices,
             llvm::ArrayRef<int64_t> along) const;
  /// `locality` 2: into L2, 3: into L1.
  void prefetch(mlir::Value memory, llvm::ArrayRef<mlir::Value> indices,
                unsigned locality = 3) const;
};

/// A block of the grid, and where in it the loops are that are being emitted.
struct ContractionBlock : ContractionOps {
  ContractionBlock(const ContractionPlan &plan, tile::KernelOp kernel,
                   llvm::ArrayRef<mlir::Value> arguments,
                   const TileTarget &target, mlir::OpBuilder &builder);
  /// Sets the block's indices.
  void begin();
  /// Sets those of chunk `i`.
  void beginChunk(mlir::Value i);

  /// body(panel, columns) over the block's panels.
  void forEachPanel(RowsBody body) const;
  /// body(k, depth) over the chunk, `step` at a time.
  void forEachStep(int64_t step, RowsBody body) const;
  /// Terms of the last chunk.
  int64_t lastChunk() const {
    return plan.sum.size - (tiles.chunksOfSum - 1) * tiles.chunk;
  }
  /// Within the block.
  mlir::Value rowOf(const TilePlace &place) const {
    return add(groupStart, place.row);
  }
  /// Of the product's columns.
  mlir::Value firstColumn(mlir::Value panel) const {
    return add(columnStart, mul(panel, tiles.width));
  }
  /// The block's first one of the rows that IntegerRows has.
  mlir::Value firstIntegerRow() const;
  /// The micropanel that begins at a column of the block.
  mlir::Value micropanelOf(mlir::Value column) const;
  /// Column of the matrix at a column of the block, if products sum over the
  /// matrix's rows.
  mlir::Value matrixColumn(mlir::Value column) const;

  const ContractionPlan &plan;
  tile::KernelOp kernel;
  llvm::ArrayRef<mlir::Value> arguments; ///< buffers of the cluster's
  const TileTarget &target;
  const ContractionTiles tiles;

  llvm::SmallVector<mlir::Value> outerIndices; ///< by position in plan.dims
  mlir::Value rowStart, columnStart;
  mlir::Value isLastRows, isLastColumns; ///< null where no block is ragged
  mlir::Value groupMatrix;     ///< number of the group, if it selects a matrix
  mlir::Value groupMicropanel; ///< the first one of the group's matrix
  // If groups are rows; null otherwise.
  mlir::Value ownedRows, allRows; ///< rows of the block: the group's, to store
  // If groups are runs of the sum; null otherwise.
  mlir::Value sumBegin, sumTerms; ///< the group's first term, their number
  mlir::Value chunksHere;         ///< chunks that hold them

  // Of the chunk.
  mlir::Value chunkIndex, sumStart;
  mlir::Value isLastOfSum; ///< the ragged chunk; null where none is
  mlir::Value depthHere;   ///< terms, if groups are runs of the sum
  llvm::SmallVector<mlir::Value> outerSums; ///< indices

  mlir::Value groupStart; ///< of the rows that are staged, within the block

private:
  void beginGroup(mlir::Value rowBlock);
};

/// A part of the kernel: emits at the block's builder.
struct ContractionPart : ContractionOps {
  explicit ContractionPart(ContractionBlock &block)
      : ContractionOps(block), block(block), plan(block.plan),
        tiles(block.tiles), target(block.target) {}

  ContractionBlock &block;
  const ContractionPlan &plan;
  const ContractionTiles &tiles;
  const TileTarget &target;
};

/// The elementwise ops of the cluster, computed on the sums in registers.
class ContractionEpilogue : ContractionPart {
public:
  ContractionEpilogue(ContractionBlock &block, graph::ClusterOp cluster,
                      llvm::ArrayRef<mlir::Value> results)
      : ContractionPart(block), cluster(cluster), results(results),
        buffers{plan.expression.pieces.front(),
                llvm::SmallVector<mlir::Value>(block.arguments), loc} {}
  /// Loop-invariant values are emitted here, before all loops.
  void begin();
  void emit(const TilePlace &place, mlir::Value sums);
  /// Of sums of zero, for rows [begin, end) of the block.
  void emitZeroRows(mlir::Value begin, mlir::Value end);

private:
  void emitRows(const TilePlace &place, mlir::Value sums, int64_t row,
                int64_t rows);

  graph::ClusterOp cluster;
  llvm::ArrayRef<mlir::Value> results;
  EmitTarget buffers;
  std::optional<EmitScope> top;
};

} // namespace tessera
