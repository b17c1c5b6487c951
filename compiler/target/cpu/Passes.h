// Passes of the CPU target, and the pipeline that InitAll registers for
// tessera-opt: lower-tile-to-llvm.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace tessera::cpu {

#define GEN_PASS_DECL
#include "compiler/target/cpu/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "compiler/target/cpu/Passes.h.inc"

/// Converts a module of machine-vector functions to the LLVM dialect in place.
/// On failure the conversion has already emitted a diagnostic.
mlir::LogicalResult convertToLlvmDialect(mlir::ModuleOp module);

/// Registers both passes and the pipeline lower-tile-to-llvm (one after the
/// other, with the first one's options).
void registerPasses();

} // namespace tessera::cpu
