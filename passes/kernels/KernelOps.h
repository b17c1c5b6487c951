// Index arithmetic and control flow for skeletons that emit their own loops.
#pragma once
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace tessera {

struct KernelOps {
  KernelOps(mlir::OpBuilder &b, mlir::Location loc) : b(b), loc(loc) {}

  mlir::OpBuilder &b;
  mlir::Location loc;

  using Values = llvm::SmallVector<mlir::Value>;
  /// body(i, carried) → the new carried values.
  using Body = llvm::function_ref<Values(mlir::Value, mlir::ValueRange)>;

  mlir::Value index(int64_t value) const;
  mlir::ValueRange forRange(mlir::Value begin, mlir::Value end,
                            mlir::Value step, mlir::ValueRange init,
                            Body body) const;
  mlir::ValueRange forRange(mlir::Value begin, mlir::Value end, int64_t step,
                            mlir::ValueRange init, Body body) const {
    return forRange(begin, end, index(step), init, body);
  }
  Values ifElse(mlir::Value condition, mlir::TypeRange results,
                llvm::function_ref<Values()> yes,
                llvm::function_ref<Values()> no) const;
  void ifTrue(mlir::Value condition, llvm::function_ref<void()> body) const;
};

} // namespace tessera
