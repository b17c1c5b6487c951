// The reverse sweep over a block of ops: cotangents from results to operands.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace tessera::autodiff {

/// Float tensors that depend on what we differentiate for.
using ActiveSet = llvm::DenseSet<mlir::Value>;

inline bool isFloatTensor(mlir::Value value) {
  return mlir::isa<mlir::FloatType>(graph::tensorType(value).getElementType());
}

/// Adds to `active` every float result in `block` that depends on an active
/// value.
void markActive(mlir::Block &block, ActiveSet &active);

class ReverseSweep {
public:
  /// The gradient of a call: one cotangent an operand, null for none.
  /// `cotangents` has one entry a result, null where nothing flows back.
  using CallVjp =
      llvm::function_ref<mlir::FailureOr<llvm::SmallVector<mlir::Value>>(
          mlir::OpBuilder &, mlir::func::CallOp,
          llvm::ArrayRef<mlir::Value> cotangents)>;

  ReverseSweep(mlir::OpBuilder &builder, const ActiveSet &active)
      : builder(builder), active(active) {}

  /// Adds to the cotangent of `value`. Order matters to the last bit: the sum
  /// is taken in the order of the calls.
  void add(mlir::Value value, mlir::Value cotangent);

  /// Null where nothing flows back.
  mlir::Value cotangent(mlir::Value value) const {
    return cotangents.lookup(value);
  }

  /// Goes through `ops` from the last to the first; emits at the builder's
  /// insertion point. Errors: an op that has no gradient stands between the
  /// loss and a parameter.
  mlir::LogicalResult run(llvm::ArrayRef<mlir::Operation *> ops,
                          CallVjp callVjp);

private:
  mlir::FailureOr<llvm::SmallVector<mlir::Value>>
  differentiate(mlir::Operation *op, llvm::ArrayRef<mlir::Value> results,
                CallVjp callVjp);

  mlir::OpBuilder &builder;
  const ActiveSet &active;
  llvm::DenseMap<mlir::Value, mlir::Value> cotangents;
};

} // namespace tessera::autodiff
