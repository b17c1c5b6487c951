// In which element type a model computes. See README.md in this folder.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "runtime/recipe/Recipe.h"

namespace tessera {

#define GEN_PASS_DECL
#include "passes/precision/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/precision/Passes.h.inc"

/// The precision phase: apply-precision, folding of constants, and the
/// verifier. With `roundRows`, rows of tables are rounded as in inference.
void buildPrecisionPipeline(mlir::OpPassManager &pipeline,
                            recipe::Precision compute, bool roundRows = false);

/// Converts whole programs to f64, after autodiff, and removes redundant
/// conversions.
void buildF64Pipeline(mlir::OpPassManager &pipeline);

} // namespace tessera
