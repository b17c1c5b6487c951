// Groups graph ops into clusters, each of which becomes one kernel. See
// README.md in this folder.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/StringRef.h"

namespace tessera {

#define GEN_PASS_DECL
#include "passes/fusion/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/fusion/Passes.h.inc"

/// Graph functions in, functions of clusters out. verify-fused is left to what
/// follows, since the phase restores layers afterwards.
void buildFusionPipeline(mlir::OpPassManager &pipeline);

} // namespace tessera
