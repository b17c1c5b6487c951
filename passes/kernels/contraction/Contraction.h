// How an einsum becomes a kernel: its labels as strided dimensions, a grid of
// blocks, and inside a block panels and register tiles.
#pragma once
#include "passes/fusion/ClusterExpression.h"
#include "passes/kernels/Tiling.h"
#include "runtime/support/QuantizedLayout.h"

namespace tessera {

/// A run of labels with one stride in each operand; 0 where the operand lacks
/// or repeats it.
struct ContractionDim {
  int64_t size;
  int64_t lhs, rhs; ///< strides in elements of the operands' buffers
};

/// An operand of the product, as its memory is.
struct ContractionOperand {
  unsigned argument; ///< of the cluster
  mlir::Type memory; ///< element type of the buffer
  mlir::Type
      element;    ///< element type of the einsum's operand: wider, or the same
  int64_t offset; ///< of element (0, 0, …) in the buffer
};

/// A product for each group of rows, where how many rows a group has is data
/// (graph.grouped_matmul, graph.grouped_outer).
struct ContractionGroups {
  unsigned argument; ///< of the cluster: offsets of packed rows, counts of
                     ///< padded ones
  int64_t count;     ///< of groups
  bool isPadded;
  bool ofSum;         ///< rows are what is summed over, not rows of the product
  int64_t matrix = 0; ///< from one group's matrix of rhs to the next, where
                      ///< groups are no dimension of the results

  /// Groups are runs of the product's rows: tiles of rows are cut from each
  /// run, as slots (GroupedRows.h) that may be empty.
  bool hasSlots() const { return !isPadded && !ofSum; }
};

/// A rhs of integers or e4m3 with scales (graph.dequantize); rhs.argument are
/// the values, and its strides those of the matrix [rows, columns] of the
/// layout.
struct ContractionQuant {
  QuantizedLayout layout;
  std::optional<unsigned> scales; ///< argument of the cluster
  /// On CPUs, few rows: integers are widened in registers, each time that a
  /// register tile of rows wants them. Otherwise a block widens its columns
  /// once, as it stages them.
  bool streams = false;
  /// Then: rows are multiplied as integers, which a launch before makes of them
  /// (IntegerRows); the kernel's first buffer has those.
  bool integers = false;

  /// bf16, which needs neither scales nor widening: products read micropanels
  /// as panels of 16 columns that have been staged already.
  bool isMicropanels() const { return !layout.hasScales(); }
};

/// Rows as integers for products with quantized weights: i32 [rows, width()].
///
///   words   [blocks, 2, 8]  of 32 columns upper bytes, then lower ones
///   sums    [groups]        of a group's integers, times minus what its
///                           weights are multiplied with too much, or, where
///                           zero points say how much that is, times -1
///   scales  [groups]        powers of two, the bits of f32
struct IntegerRows {
  static constexpr int64_t kWords = QuantizedLayout::kBlock / 4;
  int64_t rows, blocks, groups;

  int64_t sums() const { return blocks * 2 * kWords; }
  int64_t scales() const { return sums() + groups; }
  int64_t width() const { return scales() + groups; }
  View view() const;
  /// Bytes are multiplied without signs: with so much added.
  static int64_t offset(const QuantizedLayout &layout) {
    return layout.bits == 8 ? 128 : layout.offset();
  }
  /// Minus what sums are times.
  static int64_t factor(const QuantizedLayout &layout) {
    return layout.zeros ? 1 : offset(layout);
  }
};

/// Rows of lhs in chunks of the sum, for products with micropanels in matrix
/// registers: [chunks, rows, depth], padded.
struct PackedRows {
  /// Rows of a tile in matrix registers, and terms that they add at once.
  static constexpr int64_t kTile = 32, kTerms = 32;
  int64_t rows, terms;
  int64_t depth; ///< terms of a chunk; the last may have fewer
  /// Tiles begin where groups do: there is a whole one behind the last row.
  bool ofGroups = false;
  int64_t chunks() const { return (terms + depth - 1) / depth; }
  View view() const;
};

/// The product of a cluster: `rows` × `columns` for each index of `outer`,
/// summed over `sum` and `outerSums`. What the plan says does not depend on the
/// target. Rows come from lhs and columns from rhs; the einsum's operands are
/// exchanged where that makes columns the innermost dimension of the results.
struct ContractionPlan {
  ContractionOperand lhs, rhs;
  mlir::Value result;           ///< of the einsum
  ClusterExpression expression; ///< the epilogue; one piece
  /// One for each dimension of the expression.
  llvm::SmallVector<ContractionDim> dims;
  llvm::SmallVector<unsigned> outer;   ///< positions in `dims`
  std::optional<unsigned> row, column; ///< positions in `dims`; absent: size 1
  ContractionDim sum;
  llvm::SmallVector<ContractionDim> outerSums;
  /// Where they are dimensions of the results, they are dims[0].
  std::optional<ContractionGroups> groups;
  std::optional<ContractionQuant> quant;
  /// The rows once more, which a launch before copies and matrix registers
  /// read; then the kernel's first buffer has them.
  std::optional<PackedRows> packed;

  // The grid: tiles of blockRows × blockColumns, rows fastest (on a GPU in
  // groups of some), then columns, then the outer dimensions. blockColumns is a
  // multiple of 16 or covers all.
  int64_t blockRows, blockColumns;
  /// False: vector registers multiply on every target, as the cluster's
  /// tile.plan says.
  bool usesMatrices = true;
  /// Of a GPU: so many blocks take tiles in turn; 0: each block has one.
  int64_t persistentBlocks = 0;

  ContractionDim rowDim() const { return row ? dims[*row] : kOne; }
  ContractionDim columnDim() const { return column ? dims[*column] : kOne; }
  int64_t rowBlocks() const;
  int64_t columnBlocks() const;
  /// Of what a grid is chosen by: matrices of the product, one for each index
  /// of `outer` and each group of packed rows, and their rows, as if all such
  /// groups had as many.
  int64_t outerCount() const;
  int64_t typicalRows() const;
  int64_t tiles() const; ///< blockRows × blockColumns each
  int64_t blocks() const {
    return persistentBlocks ? persistentBlocks : tiles();
  }
  /// Products that each element of the result adds up.
  int64_t terms() const;
  /// Whether few rows meet columns of rhs that each lie in one run, as when one
  /// token meets a weight: a CPU then reads rhs once, as it comes, and what
  /// counts is the rate of its memory.
  bool streams() const;
  /// Whether columns are bf16 in micropanels, and whether few rows meet them.
  bool isMicropanels() const { return quant && quant->isMicropanels(); }
  bool streamsMicropanels() const { return isMicropanels() && quant->streams; }
  /// Whether registers that hold matrices can multiply it, however many rows
  /// there are: bf16 on both sides, all of it in memory or, of quantized
  /// weights, widened to it as many rows have them staged. Of groups, those
  /// whose rows are rows of the product.
  bool fitsMatrices() const;
  /// Tells plans apart beyond their expressions.
  std::string key() const;

private:
  static constexpr ContractionDim kOne{1, 0, 0};
};

/// The product of a contraction or grouped cluster. Fails where an operand is
/// no strided view (with at most a widening conversion) of an argument, or the
/// epilogue is no function of the product's elements in their order. The grid
/// is that of all CPU targets, or of the GPU `target`.
llvm::Expected<ContractionPlan> planContraction(graph::ClusterOp cluster,
                                                const TileTarget &target);

/// Chooses blockRows and blockColumns by the least expected loss:
///   staging rhs    c / blockRows     of a block's multiplications,
///   staging lhs    c' / blockColumns,
///   partial sums   c" / chunk, where the sum is longer than a chunk,
///   imbalance      what the last round of blocks leaves idle on 2 and 8
///   threads, dispatch       a fixed cost a block.
void chooseGrid(ContractionPlan &plan);
/// The tile of a GPU's block: large where there are enough of them to fill a
/// chip.
void chooseGpuGrid(ContractionPlan &plan, const TileTarget &target);

/// Others that may be as fast on a GPU as the one that was chosen, the
/// likeliest first; two at most. None where the product is too small for it to
/// matter. With `all`, every one that there is.
std::vector<ContractionPlan> otherGpuGrids(const ContractionPlan &plan,
                                           const TileTarget &target, bool all);

/// The grid of a product with quantized weights. Fails where columns of the
/// results do not lie as micropanels do.
llvm::Error chooseQuantGrid(ContractionPlan &plan, const TileTarget &target);

/// Whether the product of a grid with few rows is one of integers.
bool multipliesIntegers(const ContractionPlan &plan);
IntegerRows integerRows(const ContractionPlan &plan);
/// Columns of such a product's block.
int64_t integerColumns(const QuantizedLayout &layout);
/// The integers that the product's rows are, by a launch before the cluster or
/// by an earlier one of the same.
llvm::Expected<mlir::Value> launchIntegerRows(const ContractionPlan &plan,
                                              graph::ClusterOp cluster,
                                              TilingContext &context);

/// How rows are packed where there are many and columns are micropanels;
/// nullopt where they are not.
std::optional<PackedRows> packedRows(const ContractionPlan &plan);
/// The rows as `plan.packed` says, by a launch before the cluster or by an
/// earlier one of the same.
llvm::Expected<mlir::Value> launchPackedRows(const ContractionPlan &plan,
                                             graph::ClusterOp cluster,
                                             TilingContext &context);

/// Fills the kernel's body for a target. `arguments` and `results` are the
/// buffers of the cluster's arguments (null where it has none) and results.
llvm::Error emitContraction(const ContractionPlan &plan,
                            graph::ClusterOp cluster, tile::KernelOp kernel,
                            llvm::ArrayRef<mlir::Value> arguments,
                            llvm::ArrayRef<mlir::Value> results,
                            const TileTarget &target, mlir::OpBuilder &builder);
/// The same for a GPU. Fails on f64, which its tensor cores do not take here.
llvm::Error emitGpuContraction(const ContractionPlan &plan,
                               graph::ClusterOp cluster, tile::KernelOp kernel,
                               llvm::ArrayRef<mlir::Value> arguments,
                               llvm::ArrayRef<mlir::Value> results,
                               const TileTarget &target,
                               mlir::OpBuilder &builder);

} // namespace tessera
