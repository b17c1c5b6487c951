// Converts launches on tensors to a program over bytes. See README.md in this
// folder.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/ArrayRef.h"

namespace tessera {

#define GEN_PASS_DECL
#include "passes/planning/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/planning/Passes.h.inc"

/// The planning phase: plan-buffers, then verify-plan.
void buildPlanningPipeline(mlir::OpPassManager &pipeline);

/// A request for bytes with the live range from step `first` to step `last`,
/// both included.
struct ArenaRequest {
  int64_t bytes, first, last;
  int64_t offset = 0; ///< the answer
};

/// Chooses offsets such that requests with overlapping live ranges do not
/// overlap in bytes; returns the size of the arena. Largest first, lowest gap
/// that fits: within a few percent of the lower bound (the fullest step) on
/// training programs.
int64_t assignOffsets(llvm::MutableArrayRef<ArenaRequest> requests);

} // namespace tessera
