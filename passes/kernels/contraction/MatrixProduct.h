// Contractions of bf16 in matrix registers (AMX): tiles are multiplied by
// tile.mma_staged, and the epilogue reads their sums from memory.
#pragma once
#include "passes/kernels/contraction/ContractionEngine.h"

namespace tessera {

/// What all of them need of a chunk.
class MatrixRegisters : public ChunkedProduct {
protected:
  using ChunkedProduct::ChunkedProduct;
  bool hasPartials() const { return tiles.chunks > 1; }
  /// Whether the chunk adds to sums of earlier ones.
  mlir::Value keepsSums() const;
  /// Terms of the chunk, with zero padding.
  mlir::Value depth() const;
  /// `finish` when sums are complete.
  void afterLast(llvm::function_ref<void()> finish) const;

  /// Whether the code is for the last of many chunks, if that is known.
  std::optional<bool> inLastChunk;
};

/// Tiles of 32 × 32. Both operands are staged, but for weights in micropanels,
/// and for rows that an earlier launch packed (PackedRows.cpp).
///
/// k is padded with zeros to a whole block of terms on both sides. Padding rows
/// and columns of a tile are undefined, and their sums are not used.
class MatrixProduct : public MatrixRegisters {
public:
  using MatrixRegisters::MatrixRegisters;

protected:
  mlir::Value allocateRows() const override;
  mlir::Value allocateSums() const override;
  void multiply() override;
  virtual void multiplyRows();
  void padRows(mlir::Value rows);
  /// `isFar`: weights are streamed from memory, for these rows only.
  void emitProduct(const TilePlace &place, llvm::ArrayRef<mlir::Value> at,
                   bool isFar);
  /// The epilogue of `rows` rows of a tile, from `row` of it on.
  void emitSums(const TilePlace &place, llvm::ArrayRef<mlir::Value> at,
                mlir::Value row, int64_t rows);

private:
  bool keepsPanels() const;
  void padSums(llvm::function_ref<void(int64_t)> body);
  void storeZeros(mlir::Value memory, llvm::ArrayRef<mlir::Value> at,
                  int64_t rows, int64_t columns);
  void padColumns();
  void emitGroup(mlir::Value start, int64_t rows);
  void emitTile(const TilePlace &place);
  void emitManyTiles(const TilePlace &place, llvm::ArrayRef<mlir::Value> at);
  void emitManyProducts(const TilePlace &place, llvm::ArrayRef<mlir::Value> at,
                        std::optional<bool> isLast);
  void emitInterleaved(const TilePlace &place, llvm::ArrayRef<mlir::Value> at);
  void stageNext(mlir::Value panel);
};

/// The same of rows of groups, whose number is read by the kernel.
std::unique_ptr<ContractionEngine>
groupedMatrixProduct(ContractionBlock &block, ContractionEpilogue &epilogue);

} // namespace tessera
