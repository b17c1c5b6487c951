// The parts of a contraction kernel.
#pragma once
#include "passes/kernels/contraction/ColumnSource.h"
#include "passes/kernels/contraction/QuantWeights.h"
#include "passes/kernels/contraction/StridedOperand.h"

namespace tessera {

/// Emits one kernel. See Contraction.h for what is computed, and emitBlock for
/// how.
class ContractionEmitter : public ContractionBlock {
public:
  ContractionEmitter(const ContractionPlan &plan, graph::ClusterOp cluster,
                     tile::KernelOp kernel,
                     llvm::ArrayRef<mlir::Value> arguments,
                     llvm::ArrayRef<mlir::Value> results,
                     const TileTarget &target, mlir::OpBuilder &builder);
  /// for each chunk of k
  ///   stage rhs, as panels of a register tile's columns
  ///   for each group of rows: stage lhs (one group of all if it is not staged)
  ///     for each register tile's rows
  ///       for each panel: multiply; at the end, the epilogue
  void emit();

private:
  /// Rows of a block as register tiles: `tall` of `height`, `low` of one row
  /// less, one of `rest`.
  struct RowCover {
    int64_t tall, low, rest;
  };
  RowCover coverEvenly(int64_t rows) const;
  RowCover coverFromTop(int64_t rows) const;

  // The nest.
  void emitAllocations();
  void emitChunks();
  void emitChunk();
  void emitGroups();
  void emitGroup(mlir::Value start, int64_t rows);
  void emitRowTiles();
  void emitRow(mlir::Value row, int64_t rows);
  void emitTile(const TilePlace &place);
  mlir::Value emitProduct(const TilePlace &place, mlir::Value accumulator);
  mlir::Value emitStepLoop(const TilePlace &place, mlir::Value end,
                           mlir::Value accumulator);
  mlir::Value emitSteps(const TilePlace &place, mlir::Value k, int64_t steps,
                        mlir::Value accumulator);
  mlir::Value loadRows(mlir::Value row, mlir::Value k, int64_t rows,
                       int64_t steps);

  // Groups of rows (ContractionGroups.cpp).
  /// `nest` if there is something to multiply; zeros for the rest.
  void emitOwned(llvm::function_ref<void()> nest);
  /// The rows of the block that are its group's, in register tiles.
  void emitOwnedRows();
  /// The same in matrix registers.
  void emitOwnedMatrices();
  void stageOwnedRows(mlir::Value rows);
  void emitOwnedPanel(mlir::Value panel, int64_t columns, mlir::Value rows);
  /// body(row, rows) over tiles for matrix registers, the last of which may
  /// extend past `count` rows.
  void forEachMatrixTile(mlir::Value count, int64_t columns,
                         llvm::function_ref<void(mlir::Value, int64_t)> body);
  mlir::Value emitDynamicProduct(const TilePlace &place,
                                 mlir::Value accumulator);
  // Quantized weights (ContractionQuant.cpp). Few rows: lhs is staged in f32,
  // then sums of one micropanel after another, then their epilogue. Many:
  // panels of rhs are dequantized and staged.
  /// Some rows of the block that are multiplied by a micropanel together.
  struct StreamedRows {
    mlir::Value first;
    int64_t count;
    bool prefetches; ///< whether it prefetches later weights
  };
  bool streamsQuantized() const {
    return plan.quant && plan.quant->streams && !plan.isMicropanels();
  }
  void allocateStreamed();
  void emitStreamed();
  void stageStreamedRow(mlir::Value row);
  mlir::Value stageStreamed(mlir::Value row, mlir::Value k, int64_t count);
  void stageStreamedGroup(mlir::Value row, mlir::Value group, int64_t size);
  void emitOwnedMicropanel(mlir::Value micropanel, mlir::Value slot,
                           int64_t tall);
  void emitMicropanel(mlir::Value micropanel, mlir::Value slot,
                      const StreamedRows &rows);
  mlir::Value emitMicropanelGroup(mlir::Value micropanel, mlir::Value group,
                                  const StreamedRows &rows, int64_t size,
                                  mlir::Value sum);
  void emitMicropanelBlock(mlir::Value micropanel, mlir::Value block,
                           const StreamedRows &rows,
                           llvm::MutableArrayRef<mlir::Value> chains);
  mlir::Value dequantizeWord(mlir::Value word, int64_t place);
  // Few rows as integers (ContractionIntegers.cpp).
  mlir::Value packedRow();
  mlir::Value loadPacked(mlir::Value at, const StreamedRows &rows);
  /// Prefetches from `memory` [micropanels, middle, 16] after index `at` of a
  /// micropanel, where one index corresponds to so many lines of words.
  void prefetchWeights(mlir::Value memory, mlir::Value micropanel,
                       mlir::Value at, int64_t lines);
  /// `prefetches`: also later ones.
  mlir::Value loadWords(mlir::Value micropanel, mlir::Value at,
                        bool prefetches);
  void prefetchScales(mlir::Value micropanel, mlir::Value group);
  mlir::Value emitIntegerGroup(mlir::Value micropanel, mlir::Value group,
                               const StreamedRows &rows, int64_t size,
                               mlir::Value sum);
  void emitIntegerBlock(mlir::Value micropanel, mlir::Value block,
                        const StreamedRows &rows, mlir::Value &upper,
                        mlir::Value &lower);
  mlir::Value takeZeros(mlir::Value sums, mlir::Value micropanel,
                        mlir::Value group);

  // Matrix registers (ContractionMatrix.cpp).
  bool keepsPanels() const;
  void allocateMatrices();
  /// body(terms of the last chunk) if they are not a whole number of blocks.
  void padSums(llvm::function_ref<void(int64_t)> body);
  void storeZeros(mlir::Value memory, mlir::Value slot,
                  std::pair<mlir::Value, mlir::Value> start, int64_t rows,
                  int64_t columns);
  void padColumns();
  void padRows(mlir::Value rows);
  void emitMatrixGroup(mlir::Value start, int64_t rows);
  void emitMatrixTile(const TilePlace &place);
  /// `isFar`: weights are streamed from memory, for these rows only.
  void emitMatrixProduct(const TilePlace &place, mlir::Value sums,
                         mlir::ValueRange at, bool isFar);
  void emitManyTiles(const TilePlace &place, mlir::Value sums,
                     llvm::ArrayRef<mlir::Value> at);
  void emitMatrixSums(const TilePlace &place, mlir::Value sums,
                      llvm::ArrayRef<mlir::Value> at, mlir::Value row,
                      int64_t rows);
  void emitTransposedTiles();
  mlir::Value keepsSums();   ///< whether the chunk adds to sums of earlier ones
  mlir::Value matrixDepth(); ///< terms of the chunk, with zero padding
  mlir::Value blocksOfTerms(); ///< as many as tile.mma_staged adds at once
  /// `finish` when sums are complete.
  void emitAfterLast(llvm::function_ref<void()> finish);

  // Staging.
  void allocateRows();
  /// `rows` rows of the chunk, from `start` of the block on.
  void stageRows(mlir::Value start, int64_t rows);

  std::optional<StridedOperand> lhs; ///< rows
  mlir::Value rowCopy;               ///< null if in place
  std::unique_ptr<ColumnSource> rhs;
  ContractionEpilogue epilogue;
  /// Whether the code is for the last of many chunks, if that is known.
  std::optional<bool> inLastChunk;
  mlir::Value partials; ///< sums between chunks; null for one chunk
  mlir::Value packed;   ///< [chunks, rows, depth]: lhs for matrix registers
  mlir::Value tileSums; ///< of one tile, with one chunk in matrix registers

  // Of quantized weights; null otherwise.
  std::optional<QuantWeights> weights;
  mlir::Value streamed;       ///< [rows, columns padded]: lhs, scaled to words
  mlir::Value negatedSums;    ///< [rows, groups]: of lhs
  mlir::Value packedRows;     ///< IntegerRows instead of both
  mlir::Value firstPacked;    ///< the block's first row of those
  mlir::Value micropanelSums; ///< [rows, columns of the block]
};

} // namespace tessera
