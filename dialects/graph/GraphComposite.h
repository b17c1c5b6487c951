// Pieces that composites share. A family of composites is one file: what is
// verified, what it means in primitives, its gradient and its sharding rule.
#pragma once
#include "dialects/graph/Build.h"

namespace tessera::graph::detail {

/// To the element type of `like`.
inline mlir::Value convertLike(Emitter &e, mlir::Value x, mlir::Value like) {
  return e.convert(x, tensorType(like).getElementType());
}

/// No operand has a gradient.
inline llvm::SmallVector<mlir::Value> none(mlir::Operation *op) {
  return llvm::SmallVector<mlir::Value>(op->getNumOperands());
}

/// The gradient that the primitives of a composite have, which it emits again:
/// of its operands nothing else is saved. All of them are Differentiable.
llvm::SmallVector<mlir::Value> vjpOfDecomposition(Decomposable op,
                                                  mlir::OpBuilder &builder,
                                                  mlir::ValueRange cotangents);

/// exp(x - max) along the last dimension, its sum, and the natural logarithm of
/// the sum of exp(x). A row of -inf has exponentials 0 and logarithm -inf.
struct Exponentials {
  mlir::Value value, sum, logSum;
};
Exponentials exponentials(Emitter &e, mlir::Value x);

/// As graph.take_along_axis, in primitives: x [rows, n] at indices [rows, k].
mlir::Value takeAlongRows(Emitter &e, mlir::Value x, mlir::Value indices);
/// Its gradient: [rows, k] at indices [rows, k] → [rows, n], with sums where
/// several indices name an element.
mlir::Value addAlongRows(Emitter &e, mlir::Value x, mlir::Value indices,
                         int64_t n);

/// Of an op with a `cap`.
template <typename Op> std::optional<double> capOf(Op op) {
  std::optional<llvm::APFloat> cap = op.getCap();
  return cap ? std::optional(cap->convertToDouble()) : std::nullopt;
}

/// A bound of what goes through tanh.
template <typename Op> mlir::LogicalResult verifyCap(Op op) {
  std::optional<llvm::APFloat> cap = op.getCap();
  if (cap && !(cap->isFinite() && cap->convertToDouble() > 0))
    return op.emitOpError("expects a cap above 0");
  return mlir::success();
}

/// Loops of slots [tokens, k] and of the first dimension of packed rows, one
/// for each slot.
OpRule::Dims packedSlots(OpRule &rule, mlir::Value slots);

} // namespace tessera::graph::detail
