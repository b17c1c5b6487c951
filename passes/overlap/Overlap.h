// When collectives start and when they are waited for. See README.md in this
// folder.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/ArrayRef.h"

namespace tessera {

#define GEN_PASS_DECL
#include "passes/overlap/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/overlap/Passes.h.inc"

/// The schedule phase: order-collectives, bucket-collectives,
/// overlap-collectives, verify-overlap.
void buildOverlapPipeline(mlir::OpPassManager &pipeline);

/// Decides in which order the collectives of a step start and which of them
/// travel together, once for the programs of all groups of devices: attributes
/// dist.start. Fails, with an error at the first op that differs, where the
/// programs do not do the same together.
mlir::LogicalResult orderCollectives(llvm::ArrayRef<mlir::ModuleOp> shares);

} // namespace tessera
