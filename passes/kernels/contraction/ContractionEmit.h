// The parts of a contraction kernel.
#pragma once
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
  void prefetchColumns(mlir::Value column, mlir::Value k);

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
  void makeQuant(llvm::ArrayRef<mlir::Value> arguments);
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
  struct Prefetch {
    int64_t bytes;
    unsigned locality; ///< of memref.prefetch: 2 for L2, 3 for L1
  };
  /// The prefetch distances of weights for few rows: `near` into L1, and the
  /// target's far one into L2.
  llvm::SmallVector<Prefetch, 2> prefetchDistances(int64_t near) const;
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

  // Dequantized columns (ContractionDequantize.cpp).
  /// Panels that are staged at once if dequantization is interleaved with
  /// products.
  static constexpr int64_t kSlots = 2;
  /// A word of 16 columns, [terms of a word, columns]; `zeros` may be null.
  struct QuantScales {
    mlir::Value scale, zeros;
  };
  /// A micropanel of the weights and its destination: a panel's slot, a column
  /// of it.
  struct StagedMicropanel {
    mlir::Value micropanel, slot, column;
  };
  void stageQuantColumns();
  /// The same of a product that sums over the matrix's rows.
  void stageQuantRows();
  void stageQuantTile(mlir::Value micropanel, mlir::Value depth,
                      mlir::Value panel, int64_t column);
  void stageNextPanel(mlir::Value panel, mlir::Value blocks);
  void stageQuantBlock(mlir::Value micropanel, mlir::Value panel,
                       int64_t column, mlir::Value block);
  mlir::Value groupOf(mlir::Value block);
  mlir::Value loadQuantWord(mlir::Value micropanel, mlir::Value at);
  /// f32 [terms, columns] of words of 16 columns, before they are scaled.
  mlir::Value expandWords(llvm::ArrayRef<mlir::Value> words);
  /// q × scale, or (q - zero) × scale, in f32.
  mlir::Value scaleWeights(mlir::Value q, const QuantScales &scales);
  QuantScales loadQuantScales(mlir::Value micropanel, mlir::Value group,
                              int64_t terms);
  /// `prefetches`: words some lines ahead.
  void stageQuantWord(const StagedMicropanel &to, const QuantScales &scales,
                      mlir::Value block, mlir::Value i, bool prefetches);

  // NF4 (ContractionNormalFloat.cpp): absmax of a micropanel's groups are
  // dequantized before its weights.
  void allocateAbsmax();
  /// Those that the chunk and the block's columns read.
  void stageAbsmax(mlir::Value micropanel);
  mlir::Value firstAbsmax();
  mlir::Value loadAbsmax(mlir::Value group);
  mlir::Value splatWord(mlir::Value index);
  mlir::Value loadScaleWords(mlir::Value micropanel, mlir::Value at);
  mlir::Value dynamicNumbers(mlir::Value codes);

  // bf16 in micropanels, the packed layout (ContractionMicropanels.cpp).
  void makeMicropanels(mlir::Value buffer);
  /// All panels of the chunk.
  void stageMicropanelColumns();
  void prefetchMicropanel(mlir::Value micropanel, mlir::Value k);
  mlir::Value loadMicropanel(mlir::Value column, mlir::Value k, int64_t columns,
                             int64_t steps);
  mlir::Value loadScale(mlir::Value micropanel, mlir::Value group);
  mlir::Value loadZero(mlir::Value micropanel, mlir::Value group);
  mlir::Value loadScales(mlir::Value micropanel, mlir::Value at);

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
  void allocateColumns();
  /// All panels of the chunk.
  void stageColumns();
  /// `rows` rows of the chunk, from `start` of the block on.
  void stageRows(mlir::Value start, int64_t rows);

  // Rows, and columns that are not in micropanels.
  std::optional<StridedOperand> lhs, rhs;
  mlir::Value rowCopy, columnCopy; ///< in shared memory; null if in place
  mlir::Value micropanels; ///< of bf16 in memory: [micropanels, k, 16] in pairs
  ContractionEpilogue epilogue;
  /// Whether the code is for the last of many chunks, if that is known.
  std::optional<bool> inLastChunk;
  mlir::Value partials; ///< sums between chunks; null for one chunk
  mlir::Value packed;   ///< [chunks, rows, depth]: lhs for matrix registers
  mlir::Value tileSums; ///< of one tile, with one chunk in matrix registers

  // Of quantized weights; null otherwise.
  mlir::Value words, scales;  ///< views of the layout's values and scales
  mlir::Value streamed;       ///< [rows, columns padded]: lhs, scaled to words
  mlir::Value negatedSums;    ///< [rows, groups]: of lhs
  mlir::Value packedRows;     ///< IntegerRows instead of both
  mlir::Value firstPacked;    ///< the block's first row of those
  mlir::Value micropanelSums; ///< [rows, columns of the block]
  mlir::Value absmax;         ///< of nf4: [groups, 16] of a micropanel, f32
};

/// f32 of weights of 8 bits, integers or e4m3, that are the upper bytes of i32.
mlir::Value extendUpperBytes(mlir::OpBuilder &b, mlir::Location loc,
                             const QuantizedLayout &layout, mlir::Value words);

} // namespace tessera
