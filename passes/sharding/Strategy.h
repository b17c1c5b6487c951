// From a mesh to a strategy: which colors its axes cut.
#pragma once
#include "passes/sharding/Shardings.h"
#include "llvm/Support/Error.h"

namespace tessera::sharding {

/// `data` on sequences, `context` on tokens, `tensor` on what the estimate
/// likes best, one color after another. Tokens may become two factors, so that
/// a device has every n-th of them.
mlir::FailureOr<Strategy> chooseStrategy(mlir::ModuleOp module,
                                         Factors &factors, const Mesh &mesh,
                                         ZeroStage zero);

} // namespace tessera::sharding
