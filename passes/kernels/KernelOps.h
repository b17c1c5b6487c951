// Index arithmetic and control flow for skeletons that emit their own loops.
// Constants are folded as they are emitted.
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
  mlir::Value add(mlir::Value x, mlir::Value y) const;
  mlir::Value add(mlir::Value x, int64_t y) const { return add(x, index(y)); }
  mlir::Value sub(mlir::Value x, mlir::Value y) const;
  mlir::Value mul(mlir::Value x, int64_t y) const;
  mlir::Value div(mlir::Value x, int64_t y) const; ///< unsigned, as `rem`
  mlir::Value rem(mlir::Value x, int64_t y) const;
  mlir::Value min(mlir::Value x, mlir::Value y) const; ///< signed, as `max`
  mlir::Value max(mlir::Value x, mlir::Value y) const;
  mlir::Value compare(mlir::arith::CmpIPredicate predicate, mlir::Value x,
                      mlir::Value y) const;
  /// f32, the same in each element.
  mlir::Value splat(double value, llvm::ArrayRef<int64_t> shape) const;

  mlir::ValueRange forRange(mlir::Value begin, mlir::Value end,
                            mlir::Value step, mlir::ValueRange init,
                            Body body) const;
  mlir::ValueRange forRange(mlir::Value begin, mlir::Value end, int64_t step,
                            mlir::ValueRange init, Body body) const {
    return forRange(begin, end, index(step), init, body);
  }
  void forRange(mlir::Value begin, mlir::Value end, int64_t step,
                llvm::function_ref<void(mlir::Value)> body) const;
  Values ifElse(mlir::Value condition, mlir::TypeRange results,
                llvm::function_ref<Values()> yes,
                llvm::function_ref<Values()> no) const;
  void ifTrue(mlir::Value condition, llvm::function_ref<void()> body) const;
};

} // namespace tessera
