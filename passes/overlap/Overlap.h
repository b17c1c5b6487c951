// When collectives start and when they are waited for, so that they overlap
// with computation. See README.md in this folder.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/ArrayRef.h"

namespace tessera {

#define GEN_PASS_DECL
#include "passes/overlap/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/overlap/Passes.h.inc"

/// The phase `overlap`: order-collectives, bucket-collectives,
/// overlap-collectives, verify-overlap.
void buildOverlapPipeline(mlir::OpPassManager &pipeline);

/// Sets dist.start: the order in which collectives start and which of them are
/// merged, once for the programs of all groups of devices. An error at the
/// first op that differs if the programs do not have the same collectives.
mlir::LogicalResult orderCollectives(llvm::ArrayRef<mlir::ModuleOp> shares);

} // namespace tessera
