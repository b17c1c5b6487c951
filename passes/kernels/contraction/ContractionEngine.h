// Loop nests of a contraction's kernel.
#pragma once
#include "passes/kernels/contraction/ColumnSource.h"
#include "passes/kernels/contraction/StridedOperand.h"

namespace tessera {

/// The products of a block, and the epilogue of their sums.
class ContractionEngine : public ContractionPart {
public:
  ContractionEngine(ContractionBlock &block, ContractionEpilogue &epilogue)
      : ContractionPart(block), epilogue(epilogue) {}
  virtual ~ContractionEngine() = default;
  /// Shared memory; before all loops.
  virtual void allocate() = 0;
  virtual void emit() = 0;

protected:
  ContractionEpilogue &epilogue;
};

/// Products of one chunk of k after another:
///   stage the columns, as panels of a register tile's
///   for each group of rows: stage them (one group of all if they are not)
///     for each register tile's rows
///       for each panel: multiply; at the end, the epilogue
class ChunkedProduct : public ContractionEngine {
public:
  ChunkedProduct(ContractionBlock &block, ContractionEpilogue &epilogue);
  void allocate() final;
  void emit() final;

protected:
  virtual mlir::Value allocateRows() const = 0;
  /// Null if they stay in registers.
  virtual mlir::Value allocateSums() const = 0;
  /// Once the chunk's columns are staged.
  virtual void multiply() = 0;
  /// `rows` rows of the chunk, from `start` of the block on.
  void stageRows(mlir::Value start, int64_t rows);

  mlir::Value packed; ///< [chunks, rows, depth]: PackedRows; null without
  StridedOperand lhs;
  std::unique_ptr<ColumnSource> rhs;
  mlir::Value rowCopy; ///< null if rows are packed or read in place
  mlir::Value sums;    ///< those between chunks, if there are several
};

/// Constructors emit views of the operands' buffers.
using MakeEngine = std::unique_ptr<ContractionEngine>(ContractionBlock &,
                                                      ContractionEpilogue &);
MakeEngine vectorProduct, matrixProduct, transposedProduct, fewFloatRows,
    fewIntegerRows, fewSuperFloats, fewSuperIntegers, fewByteRows, byteRows;

using TileBody = llvm::function_ref<void(const TilePlace &)>;
/// body(place) over the register tiles of the block's rows, as one group; if
/// some are a group's, over those.
void forEachTile(ContractionBlock &block, TileBody body);
/// body(first row, rows) over the rows of those.
void forEachRowTile(ContractionBlock &block, ContractionOps::RowsBody body);
/// The same of a group of `rows` rows.
void forEachTileOfGroup(ContractionBlock &block, int64_t rows, TileBody body);
/// Heights of tiles by which any number of rows is covered, the largest first.
llvm::SmallVector<int64_t> heightsOf(const ContractionTiles &tiles);

} // namespace tessera
