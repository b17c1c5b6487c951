// What inference programs have in place of gradients: weights and caches in the
// types and layouts in which they are stored. See README.md in this folder.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include <optional>

namespace tessera {

#define GEN_PASS_DECL
#include "passes/inference/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/inference/Passes.h.inc"

struct InferenceOptions {
  bool narrow = false;  ///< store parameters and caches as bf16
  bool logSums = false; ///< return log Σ exp of logits
  /// Quantize or pack the matrices of linear layers.
  std::optional<QuantizeWeightsOptions> quantize;
};

void buildInferencePipeline(mlir::OpPassManager &pipeline,
                            const InferenceOptions &options);

} // namespace tessera
