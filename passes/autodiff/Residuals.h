// What a block's backward function is handed and what it computes again.
#pragma once
#include "passes/autodiff/Autodiff.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

namespace tessera::autodiff {

/// Decides for every forward value that the backward function needs. Arguments
/// of the block are never computed, so they are always saved; saving one costs
/// nothing that the caller does not hold anyway.
///
/// - none: saves all that is needed; recomputes only free values (constants,
///   views, random numbers, upcasts) and f32 elementwise functions of bf16
///   values, which are saved instead.
/// - selective: saves contractions and attention, each with what is computed
///   from it alone (a bias, the residual sum); recomputes the rest.
/// - full: saves only the arguments.
class ResidualPlan {
public:
  ResidualPlan(recipe::Recompute policy,
               llvm::ArrayRef<mlir::Operation *> forward)
      : policy(policy), forward(forward.begin(), forward.end()) {}

  /// `value` is a forward value that the backward function uses.
  void require(mlir::Value value);

  bool isSaved(mlir::Value value) const { return saved.contains(value); }
  bool isRecomputed(mlir::Operation *op) const {
    return recomputed.contains(op);
  }

private:
  bool recomputes(mlir::Value value) const;
  bool isForward(mlir::Operation *op) const {
    return op && forward.contains(op);
  }

  recipe::Recompute policy;
  llvm::DenseSet<mlir::Operation *> forward;
  llvm::DenseSet<mlir::Value> saved;
  llvm::DenseSet<mlir::Operation *> recomputed;
};

} // namespace tessera::autodiff
