// Builds training and evaluation programs from a loss. See README.md.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "models/Recipe.h"

namespace tessera {

#define GEN_PASS_DECL
#include "passes/autodiff/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/autodiff/Passes.h.inc"

/// Options of the phase: which program to build, and the hyperparameters that
/// `@init` writes to the state `hyper`.
struct AutodiffOptions {
  /// What a block computes again in its backward function instead of saving it.
  recipe::Recompute recompute = recipe::Recompute::None;
  BuildTrainStepOptions step;
  BuildEvalStepOptions eval;

  static AutodiffOptions fromRecipe(const models::Recipe &recipe);
};

/// The phase: `@loss`, `@logits`, `@init` in (after the precision phase),
/// `@train_step`, `@eval_step`, `@logits`, `@init` out. Ends in
/// verify-step-program.
void buildAutodiffPipeline(mlir::OpPassManager &pipeline,
                           const AutodiffOptions &options);

} // namespace tessera
