// Converts launches on tensors to a program over bytes. See README.md in this
// folder.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

namespace tessera {

#define GEN_PASS_DECL
#include "passes/planning/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/planning/Passes.h.inc"

/// The planning phase: unroll-loops, plan-buffers, mark-aligned,
/// mark-unwritten, verify-plan.
void buildPlanningPipeline(mlir::OpPassManager &pipeline);

/// Steps from `first` to `last`, both included.
struct StepRange {
  int64_t first, last;
};

/// A request for bytes that are live in some ranges of steps, ascending.
struct ArenaRequest {
  int64_t bytes;
  llvm::SmallVector<StepRange, 1> lives;
  int64_t offset = 0; ///< the answer
};

/// Chooses offsets such that requests with overlapping live ranges do not
/// overlap in bytes; returns the size of the arena. Largest first, lowest gap
/// that fits: within a few percent of the lower bound (the fullest step) on
/// training programs.
int64_t assignOffsets(llvm::MutableArrayRef<ArenaRequest> requests);

} // namespace tessera
