// The kernel that makes rows of integers or bytes of rows of bf16
// (IntegerRows).
#pragma once
#include "passes/kernels/KernelOps.h"
#include "passes/kernels/contraction/Contraction.h"

namespace tessera {

/// A block has some columns of a row, and converts one group after another.
class RowRounding : protected KernelOps {
public:
  RowRounding(const ContractionPlan &plan, tile::KernelOp kernel,
              mlir::OpBuilder &b);
  virtual ~RowRounding() = default;
  void emit();
  static int64_t groupsAtOnce(const QuantizedLayout &layout);

protected:
  /// `size` columns, fewer in the last group: words, sums and scale.
  virtual void emitGroup(mlir::Value group, int64_t size) = 0;
  /// A constant of x's type.
  mlir::Value like(mlir::Value x, uint32_t value);
  mlir::Value fold(mlir::Value x, tile::ReduceKind kind);
  /// The bits of the largest magnitude; NaNs are the largest.
  mlir::Value largest(mlir::Value k, int64_t size);
  /// body(first column, columns, value so far) over a group's blocks.
  mlir::Value overBlocks(
      mlir::Value k, int64_t size, mlir::Value init,
      llvm::function_ref<mlir::Value(mlir::Value, int64_t, mlir::Value)> body);
  /// i32 [count]: x times the inverse of the scale, to the nearest integer.
  mlir::Value roundBlock(mlir::Value k, int64_t count, mlir::Value inverse);
  /// The integers of a block, as [words, bytes of a word, sets of words]: word
  /// w has columns first + 8 w + 2 byte + set with less than 8 bits, and first
  /// + 4 w + byte with 8. `size` columns.
  mlir::Value columnsOfWords(int64_t first, int64_t size);
  mlir::Value loadIntegers(mlir::Value from, mlir::ValueRange at,
                           int64_t count);
  void storeInteger(mlir::Value x, mlir::Value at);
  int64_t setsOfWords() const { return layout.perWord() == 8 ? 2 : 1; }

  const QuantizedLayout &layout;
  IntegerRows to;
  mlir::Value packed;   ///< [rows, width]
  mlir::Value integers; ///< i32 [32], a block's
  mlir::Value row;      ///< of `packed`

private:
  mlir::Value spread(mlir::Value x, int64_t count);
  mlir::Value load(mlir::Value k, int64_t count);

  tile::KernelOp kernel;
  mlir::Value from; ///< [..., row, column]
  llvm::SmallVector<int64_t> rowSizes;
  llvm::SmallVector<mlir::Value> at; ///< the row in `from`
};

std::unique_ptr<RowRounding> byteRounding(const ContractionPlan &plan,
                                          tile::KernelOp kernel,
                                          mlir::OpBuilder &b);

} // namespace tessera
