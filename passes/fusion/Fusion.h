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

/// The fusion phase: graph functions in, functions of clusters out.
void buildFusionPipeline(mlir::OpPassManager &pipeline);

/// On an op that a composite was decomposed into: the composite's name, for
/// the names of kernels.
inline constexpr llvm::StringLiteral kOriginAttr = "graph.origin";

} // namespace tessera
