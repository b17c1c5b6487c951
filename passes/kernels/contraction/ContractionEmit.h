// The parts of a contraction kernel.
#pragma once
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernels/KernelOps.h"
#include "passes/kernels/TileEmitter.h"
#include "passes/kernels/contraction/Contraction.h"

namespace tessera {

/// A matrix in memory, [tile dimension (rows of lhs, columns of rhs), k], with
/// the indices of dimensions that are fixed within a block or a chunk.
struct ContractionSide {
  mlir::Value memory; ///< strided view of the operand's buffer
  llvm::SmallVector<mlir::Value> fixed;         ///< indices before the last two
  bool repeatsTile = false, repeatsSum = false; ///< not a dimension of memory

  bool staged = false;
  bool sumFirst = false; ///< staged as [k, tile] rather than [tile, k]
  mlir::Value shared;    ///< the staged copy: [panels, ...]
  mlir::Value
      micropanels; ///< of rhs, weights in memory: [micropanels, k, 16] in pairs
};

/// Emits one kernel. See Contraction.h for what is computed, and emitBlock for
/// how.
class ContractionEmitter : KernelOps {
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
  /// A register tile: its first row within the group, its panel.
  struct Place {
    int64_t rows, columns;
    mlir::Value row, panel;
  };

  // Choices (ContractionEmit.cpp).
  void chooseTypes();
  void chooseTiles();
  void chooseStaging();
  void chooseChunks();
  mlir::Value rowOf(const Place &place) { ///< within the block
    return add(groupStart, place.row);
  }
  RowCover coverEvenly(int64_t rows) const;
  RowCover coverFromTop(int64_t rows) const;

  // The nest.
  /// Divides `whole`, or `last` if `isLast`, into parts of `step` and a rest:
  /// body(i, length) with the part's number.
  void forEachPart(mlir::Value isLast, int64_t whole, int64_t last,
                   int64_t step,
                   llvm::function_ref<void(mlir::Value, int64_t)> body);
  /// body(panel, columns) over the block's panels.
  void forEachPanel(llvm::function_ref<void(mlir::Value, int64_t)> body);
  /// body(k, depth) over the chunk, `step` at a time.
  void forEachStep(int64_t step,
                   llvm::function_ref<void(mlir::Value, int64_t)> body);
  void emitIndices();
  void emitAllocations();
  void emitChunks();
  void emitChunk();
  void emitGroups();
  void emitGroup(mlir::Value start, int64_t rows);
  void emitRowTiles();
  void emitRow(mlir::Value row, int64_t rows);
  void emitTile(const Place &place);
  mlir::Value emitProduct(const Place &place, mlir::Value accumulator);
  mlir::Value emitStepLoop(const Place &place, mlir::Value end,
                           mlir::Value accumulator);
  mlir::Value emitSteps(const Place &place, mlir::Value k, int64_t steps,
                        mlir::Value accumulator);
  void prefetchColumns(mlir::Value column, mlir::Value k);
  void emitEpilogue(const Place &place, mlir::Value accumulator);
  void emitEpilogueRows(const Place &place, mlir::Value accumulator,
                        int64_t row, int64_t rows);
  mlir::Value loadSide(const ContractionSide &side, mlir::Value panel,
                       mlir::Value at, mlir::Value k, int64_t tile,
                       int64_t steps, bool isLeft);

  // Groups of rows (ContractionGroups.cpp).
  /// The group of the block, and which of its rows are the group's.
  void emitGroupIndices(mlir::Value rowBlock);
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
  /// The epilogue of zeros for rows [begin, end) of the block.
  void emitZeroRows(mlir::Value begin, mlir::Value end);
  /// The start of the chunk and the number of its terms.
  void emitOwnedSum();
  mlir::Value emitDynamicProduct(const Place &place, mlir::Value accumulator);
  /// Divides `count`, known at run time, into parts of these sizes, the largest
  /// first and the last 1: body(start, length).
  void forEachPartOf(mlir::Value count, llvm::ArrayRef<int64_t> sizes,
                     llvm::function_ref<void(mlir::Value, int64_t)> body);

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
  mlir::Value micropanelOf(mlir::Value column);
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
  bool interleavesDequantization() const;
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
  /// Of the matrix, if products sum over its rows.
  mlir::Value matrixColumn(mlir::Value column);

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
  void chooseMatrixTiles();
  void chooseMatrixStaging();
  void allocateMatrices();
  /// body(terms of the last chunk) if they are not a whole number of blocks.
  void padSums(llvm::function_ref<void(int64_t)> body);
  void storeZeros(mlir::Value memory, mlir::Value slot,
                  std::pair<mlir::Value, mlir::Value> start, int64_t rows,
                  int64_t columns);
  void padColumns();
  void padRows(mlir::Value rows);
  void emitMatrixGroup(mlir::Value start, int64_t rows);
  void emitMatrixTile(const Place &place);
  /// `isFar`: weights are streamed from memory, for these rows only.
  void emitMatrixProduct(const Place &place, mlir::Value sums,
                         mlir::ValueRange at, bool isFar);
  void emitManyTiles(const Place &place, mlir::Value sums,
                     llvm::ArrayRef<mlir::Value> at);
  void emitMatrixSums(const Place &place, mlir::Value sums,
                      llvm::ArrayRef<mlir::Value> at, mlir::Value row,
                      int64_t rows);
  void emitTransposedTiles();
  mlir::Value keepsSums();   ///< whether the chunk adds to sums of earlier ones
  mlir::Value matrixDepth(); ///< terms of the chunk, with zero padding
  mlir::Value blocksOfTerms(); ///< as many as tile.mma_staged adds at once
  /// `finish` when sums are complete.
  void emitAfterLast(llvm::function_ref<void()> finish);

  // Staging (ContractionStage.cpp).
  ContractionSide makeSide(const ContractionOperand &operand,
                           mlir::Value buffer, bool isLeft);
  void allocateSide(ContractionSide &side, int64_t panels, int64_t tile);
  /// All panels of the chunk.
  void stageColumns();
  /// `rows` rows of the chunk, from `start` of the block on.
  void stageRows(mlir::Value start, int64_t rows);
  /// Source and destination of a box: the slot it is staged in, its first row
  /// (column), its first step of the chunk.
  struct StagedBox {
    mlir::Value slot, start, k;
  };
  void stageBox(const ContractionSide &side, const StagedBox &box, int64_t tile,
                int64_t depth);
  void convertBox(const ContractionSide &side, const StagedBox &box,
                  int64_t tile, int64_t depth);
  /// `to`: slot, tile, k.
  void convertTile(const ContractionSide &side,
                   llvm::ArrayRef<mlir::Value> from,
                   llvm::SmallVector<mlir::Value> to, int64_t tile,
                   int64_t steps);
  llvm::SmallVector<int64_t> alongOf(const ContractionSide &side,
                                     bool sumFirst) const;
  llvm::SmallVector<mlir::Value> indicesOf(const ContractionSide &side,
                                           mlir::Value at, mlir::Value k);

  // Vocabulary.
  mlir::Value isEqual(mlir::Value x, int64_t y);
  mlir::Value select(mlir::Value condition, int64_t x, int64_t y);
  void forEach(mlir::Value count, llvm::function_ref<void(mlir::Value)> body);
  void forEach(int64_t count, llvm::function_ref<void(mlir::Value)> body);
  void ifElse(mlir::Value condition, llvm::function_ref<void()> then,
              llvm::function_ref<void()> otherwise = {});
  /// `then` unless `condition` is false; null is true.
  mlir::Value chooseValue(mlir::Value condition, mlir::Type type,
                          llvm::function_ref<mlir::Value()> then,
                          llvm::function_ref<mlir::Value()> otherwise);

  const ContractionPlan &plan;
  graph::ClusterOp cluster;
  tile::KernelOp kernel;
  llvm::ArrayRef<mlir::Value> results;
  const TileTarget &target;

  EmitTarget epilogueTarget;
  std::unique_ptr<EmitScope> top;

  mlir::Type compute, accumulate;     ///< element types of operands and sums
  bool pairs = false;                 ///< rhs is staged for products of pairs
  bool matrices = false;              ///< in matrix registers
  bool transposed = false;            ///< there columns of the result are rows
  int64_t height, width;              ///< the largest register tile
  int64_t groupRows;                  ///< rows of lhs that are staged at a time
  int64_t kStep;                      ///< products in each iteration
  int64_t chunk, chunksOfSum, chunks; ///< of k: length, of `sum`, of all sums

  llvm::SmallVector<mlir::Value> outerIndices; ///< by position in plan.dims
  mlir::Value rowStart, columnStart;           ///< of the block
  mlir::Value isLastRows, isLastColumns; ///< null where no block is ragged
  mlir::Value chunkIndex, sumStart;      ///< of the chunk
  mlir::Value groupStart;                ///< of the group, within the block
  mlir::Value isLastOfSum; ///< the ragged chunk; null where none is
  ContractionSide lhs, rhs;
  /// Whether the code is for the last of many chunks, if that is known.
  std::optional<bool> inLastChunk;
  mlir::Value partials; ///< sums between chunks; null for one chunk
  mlir::Value packed;   ///< [chunks, rows, depth]: lhs for matrix registers
  mlir::Value tileSums; ///< of one tile, with one chunk in matrix registers

  // Of quantized weights; null otherwise.
  mlir::Value words, scales;   ///< views of the layout's values and scales
  mlir::Value streamed;        ///< [rows, columns padded]: lhs, scaled to words
  mlir::Value negatedSums;     ///< [rows, groups]: of lhs
  mlir::Value packedRows;      ///< IntegerRows instead of both
  mlir::Value firstPacked;     ///< the block's first row of those
  mlir::Value micropanelSums;  ///< [rows, columns of the block]
  mlir::Value groupMicropanel; ///< the first one of the group's matrix
  mlir::Value absmax;          ///< of nf4: [groups, 16] of a micropanel, f32

  // If groups are rows; null otherwise.
  mlir::Value ownedRows, allRows; ///< rows of the block: the group's, to store
  // If groups are runs of the sum; null otherwise.
  mlir::Value sumBegin, sumTerms; ///< the group's first term, their number
  mlir::Value chunksHere;         ///< chunks that hold them
  mlir::Value depthHere;          ///< terms of the chunk
};

/// f32 of weights of 8 bits, integers or e4m3, that are the upper bytes of i32.
mlir::Value extendUpperBytes(mlir::OpBuilder &b, mlir::Location loc,
                             const QuantizedLayout &layout, mlir::Value words);

} // namespace tessera
