// How an einsum (matmul, GEMM) becomes a kernel: its labels as strided
// dimensions, a grid of blocks, and inside a block panels and register tiles.
#pragma once
#include "passes/fusion/ClusterExpression.h"
#include "passes/kernels/Tiling.h"
#include "runtime/support/QuantizedLayout.h"

namespace tessera {

/// A run of labels with one stride in each operand; 0 if the operand lacks or
/// repeats it.
struct ContractionDim {
  int64_t size;
  int64_t lhs, rhs; ///< strides in elements of the operands' buffers
};

/// An operand of the product in memory.
struct ContractionOperand {
  unsigned argument; ///< of the cluster
  mlir::Type memory; ///< element type of the buffer
  mlir::Type
      element;    ///< element type of the einsum's operand: upcast, or the same
  int64_t offset; ///< of element (0, 0, …) in the buffer
};

/// A product for each group of rows, if the number of rows of a group is data
/// (graph.grouped_matmul, graph.grouped_outer).
struct ContractionGroups {
  unsigned argument; ///< of the cluster: offsets of packed rows, counts of
                     ///< padded ones
  int64_t count;     ///< of groups
  bool isPadded;
  bool ofSum;         ///< rows are what is summed over, not rows of the product
  int64_t matrix = 0; ///< from one group's matrix of rhs to the next, where
                      ///< groups are not a dimension of the results

  /// Groups are runs of the product's rows: each run is divided into tiles of
  /// rows, as slots (GroupedRows.h) that may be empty.
  bool hasSlots() const { return !isPadded && !ofSum; }
};

/// A rhs of integers or e4m3 with scales (graph.dequantize); rhs.argument are
/// the values, and its strides those of the matrix [rows, columns] of the
/// layout.
struct ContractionQuant {
  QuantizedLayout layout;
  std::optional<unsigned> scales; ///< argument of the cluster
  /// On CPUs, few rows: weights are dequantized in registers, once for each
  /// register tile of rows. Otherwise a block dequantizes its columns once, as
  /// it stages them.
  bool streams = false;
  /// If so: rows are multiplied as integers, to which an earlier launch
  /// converts them (IntegerRows); they are the kernel's first buffer.
  bool integers = false;
  /// On CPUs: rows are multiplied as bytes, to which an earlier launch converts
  /// them (IntegerRows too).
  bool bytes = false;
  /// The product sums over the matrix's rows, as in the gradient of a linear
  /// layer's input (dY W); its columns are the matrix's.
  bool sumsRows = false;

  /// bf16 in the packed layout, which has no scales: products read micropanels
  /// as panels of 16 columns that are already staged.
  bool isMicropanels() const { return !layout.hasScales(); }
  /// Whether the product reads IntegerRows instead of its rows.
  bool readsIntegers() const { return integers || bytes; }
};

/// A block of a contraction's grid on a CPU: its rows and columns are multiples
/// of the steps.
struct CpuBlock {
  static constexpr int64_t kRowStep = 32, kColumnStep = 16;
  static constexpr int64_t kMaxRows = 2048, kMaxColumns = 1536;
};

/// Rows as integers for products with quantized weights: i32 [rows, width()].
///
///   words   [blocks, 2, 8]  of 32 columns upper bytes, then lower ones
///   sums    [groups]        of a group's integers, times minus the offset of
///   its
///                           weights, or times -1 if zero points give the
///                           offset
///   scales  [groups]        powers of two, the bits of f32
///
/// For super-blocks there is a sum for each scale of the weights, and where
/// they have minima, it is the bits of f32 of minus the sum.
///
/// Rows of bytes have one byte of each column, from -127 to 127:
///
///   words   [blocks, 8]
///   sums    [ofSums]
///   scales  [groups]        the bits of f32
///
/// Sums of int4 and int8 are as above. Of super-blocks a word has two sums of
/// 16 bits. With minima those are minus the sums of parts 4 i and 4 i + 2, or 4
/// i + 1 and 4 i + 3. Otherwise they are of each part -32 times the sum of the
/// columns whose products are added to the lower and to the upper half of a
/// word, columns below 4 of each 8 and the others (ByteProducts.h).
struct IntegerRows {
  static constexpr int64_t kWords = kQuantBlock / 4;
  int64_t rows, blocks, groups, ofSums; ///< words of sums
  bool bytes = false;

  /// Columns of a row of bytes that kernels stage at a time, in whole groups.
  static constexpr int64_t kByteChunk = 2048;
  /// Columns with one scale; of groups those that are multiplied at a time.
  static int64_t bytePart(const QuantizedLayout &layout) {
    return layout.superBlocks ? layout.scaleColumns() : kQuantBlock;
  }
  int64_t wordsOfBlock() const { return bytes ? kWords : 2 * kWords; }
  int64_t sums() const { return blocks * wordsOfBlock(); }
  int64_t scales() const { return sums() + ofSums; }
  int64_t width() const { return scales() + groups; }
  View view() const;
  /// Bytes are multiplied as unsigned, with this offset added.
  static int64_t offset(const QuantizedLayout &layout) {
    return layout.bits == 8 ? 128 : layout.offset();
  }
  /// Minus the factor of the sums.
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
  /// Tiles begin where groups do, so a whole tile follows the last row.
  bool ofGroups = false;
  int64_t chunks() const { return (terms + depth - 1) / depth; }
  View view() const;
};

/// The product of a cluster: `rows` × `columns` for each index of `outer`,
/// summed over `sum` and `outerSums`. The grid does not depend on the CPU
/// target. Rows come from lhs and columns from rhs; the einsum's operands are
/// exchanged if that makes columns the innermost dimension of the results.
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
  /// If they are dimensions of the results, they are dims[0].
  std::optional<ContractionGroups> groups;
  std::optional<ContractionQuant> quant;
  /// The packed rows, which an earlier launch copies and matrix registers read;
  /// then they are the kernel's first buffer.
  std::optional<PackedRows> packed;

  // The grid: tiles of blockRows × blockColumns, rows fastest (on a GPU in
  // groups of some), then columns, then the outer dimensions. blockColumns is a
  // multiple of 16 or covers all.
  int64_t blockRows, blockColumns;
  /// False: vector registers multiply on every target, as the cluster's
  /// tile.plan says.
  bool usesMatrices = true;
  /// Of a GPU: the number of persistent CTAs, which loop over tiles; 0: each
  /// block has one tile.
  int64_t persistentBlocks = 0;

  ContractionDim rowDim() const { return row ? dims[*row] : kOne; }
  ContractionDim columnDim() const { return column ? dims[*column] : kOne; }
  int64_t rowBlocks() const;
  int64_t columnBlocks() const;
  /// The sizes by which a grid is chosen: matrices of the product, one for each
  /// index of `outer` and each group of packed rows, and their rows, as if all
  /// such groups had as many.
  int64_t outerCount() const;
  int64_t typicalRows() const;
  int64_t tiles() const; ///< blockRows × blockColumns each
  int64_t blocks() const {
    return persistentBlocks ? persistentBlocks : tiles();
  }
  /// Terms of the sum of each element of the result.
  int64_t terms() const;
  /// Whether few rows are multiplied by columns of rhs that are contiguous, as
  /// in decode: a CPU then streams rhs from memory once, in place, and memory
  /// bandwidth is the limit.
  bool streams() const;
  /// Rows of a quantized matrix: of one of the stack that groups read.
  int64_t quantRows() const {
    return groups ? groups->matrix / quant->layout.columns : quant->layout.rows;
  }
  /// Whether columns are bf16 in micropanels (the packed layout), and whether
  /// they are streamed for few rows.
  bool isMicropanels() const { return quant && quant->isMicropanels(); }
  bool streamsMicropanels() const { return isMicropanels() && quant->streams; }
  /// Whether matrix registers can multiply it, for any number of rows: bf16 on
  /// both sides, stored so or, for quantized weights and many rows, dequantized
  /// to it while staged. Groups must be rows of the product.
  bool fitsMatrices() const;
  /// Distinguishes plans with equal expressions.
  std::string key() const;

private:
  static constexpr ContractionDim kOne{1, 0, 0};
};

/// The product of a contraction or grouped cluster. Fails if an operand is not
/// a strided view (with at most an upcast) of an argument, or the epilogue is
/// not a function of the product's elements in their order. The grid is that of
/// all CPU targets, or of the GPU `target`.
llvm::Expected<ContractionPlan> planContraction(graph::ClusterOp cluster,
                                                const TileTarget &target);

/// Chooses blockRows and blockColumns by the least expected loss:
///   staging rhs    c / blockRows     of a block's multiplications,
///   staging lhs    c' / blockColumns,
///   partial sums   c" / chunk, if the sum is longer than a chunk,
///   imbalance      idle time in the last round of blocks on 2 and 8 threads,
///   dispatch       a fixed cost for each block.
void chooseGrid(ContractionPlan &plan);
/// The tile of a GPU's block: large if there are enough of them to fill a chip.
void chooseGpuGrid(ContractionPlan &plan, const TileTarget &target);

/// Kernel variants: other grids that may be as fast on a GPU as the chosen one,
/// the likeliest first; two at most. None if the product is too small for it to
/// matter. With `all`, every one that exists.
std::vector<ContractionPlan> otherGpuGrids(const ContractionPlan &plan,
                                           const TileTarget &target, bool all);

/// The grid of a product with quantized weights. Fails if columns of the
/// results are not aligned with micropanels.
llvm::Error chooseQuantGrid(ContractionPlan &plan, const TileTarget &target);

/// Whether a product with few rows is computed on integers.
bool multipliesIntegers(const ContractionPlan &plan);
/// Whether a product with many rows can be computed on rows of bytes, and its
/// grid then.
bool canMultiplyBytes(const ContractionPlan &plan);
void chooseByteGrid(ContractionPlan &plan);
IntegerRows integerRows(const ContractionPlan &plan);
/// The product's rows as integers, from a launch before the cluster or from an
/// earlier one with the same rows.
llvm::Expected<mlir::Value> launchIntegerRows(const ContractionPlan &plan,
                                              graph::ClusterOp cluster,
                                              TilingContext &context);

/// The packing of many rows for columns in micropanels; nullopt if they are not
/// packed.
std::optional<PackedRows> packedRows(const ContractionPlan &plan);
/// The rows packed as in `plan.packed`, by a launch before the cluster or by an
/// earlier one with the same rows.
llvm::Expected<mlir::Value> launchPackedRows(const ContractionPlan &plan,
                                             graph::ClusterOp cluster,
                                             TilingContext &context);

/// Fills the kernel's body for a target. `arguments` and `results` are the
/// buffers of the cluster's arguments (null if it has none) and results.
llvm::Error emitContraction(const ContractionPlan &plan,
                            graph::ClusterOp cluster, tile::KernelOp kernel,
                            llvm::ArrayRef<mlir::Value> arguments,
                            llvm::ArrayRef<mlir::Value> results,
                            const TileTarget &target, mlir::OpBuilder &builder);
/// The same for a GPU. Fails on f64, which its tensor cores do not support
/// here.
llvm::Error emitGpuContraction(const ContractionPlan &plan,
                               graph::ClusterOp cluster, tile::KernelOp kernel,
                               llvm::ArrayRef<mlir::Value> arguments,
                               llvm::ArrayRef<mlir::Value> results,
                               const TileTarget &target,
                               mlir::OpBuilder &builder);

} // namespace tessera
