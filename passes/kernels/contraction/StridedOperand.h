// An operand of a contraction in memory, read in place or copied to shared
// memory.
#pragma once
#include "passes/kernels/contraction/ContractionBlock.h"

namespace tessera {

/// A box of an operand, `tile` rows (columns) from `start` on and terms
/// [k, k + depth) of the chunk, and where its copy is: slot `slot` of `memory`,
/// from row (column) `at` on.
struct StagedBox {
  mlir::Value memory, slot, start, k;
  int64_t tile, depth;
  mlir::Value at = {}; ///< null: 0
};

/// A matrix in memory, [tile dimension (rows of lhs, columns of rhs), k].
class StridedOperand : ContractionPart {
public:
  StridedOperand(ContractionBlock &block, bool isLeft);
  /// [tile, steps] of lhs, [steps, tile] of rhs, from step k of the chunk on.
  mlir::Value loadInPlace(mlir::Value at, mlir::Value k, int64_t tile,
                          int64_t steps);
  void stage(const StagedBox &box);
  /// The copy without a wait for it.
  void copy(const StagedBox &box);
  /// Of `memory`; k of the sum.
  llvm::SmallVector<mlir::Value> indicesOf(mlir::Value at, mlir::Value k) const;

  mlir::Value memory; ///< strided view of the operand's buffer

private:
  int64_t strideOf(const ContractionDim &dim) const {
    return isLeft ? dim.lhs : dim.rhs;
  }
  llvm::SmallVector<mlir::Value> fixedIndices() const;
  llvm::SmallVector<int64_t> alongOf(bool kFirst) const;
  mlir::Type element() const {
    return llvm::cast<mlir::MemRefType>(memory.getType()).getElementType();
  }
  void convertBox(const StagedBox &box);
  void convertTile(mlir::Value memoryOfCopy, llvm::ArrayRef<mlir::Value> from,
                   llvm::SmallVector<mlir::Value> to, int64_t tile,
                   int64_t steps);

  bool isLeft;
  bool repeatsTile, repeatsSum; ///< not a dimension of memory
  bool sumFirst;                ///< staged as [k, tile] rather than [tile, k]
};

} // namespace tessera
