// From a mesh to a strategy: which colors its axes cut.
#pragma once
#include "passes/sharding/Shardings.h"
#include "llvm/Support/Error.h"

namespace tessera::sharding {

/// What a search looked at.
struct SearchEffort {
  uint64_t strategies = 0;
  /// Ops of which it was found out how a strategy cuts them.
  uint64_t decisions = 0;
};

/// `data` on sequences, `context` on tokens, `tensor` on what the estimate
/// likes best, one color after another. Tokens may become two factors, so that
/// a device has every n-th of them. With `parts`, what products gather and
/// scatter is about to travel beside them, and is priced next to nothing.
/// `classes` are those of `factors`. Adds to `effort`.
mlir::FailureOr<Strategy>
chooseStrategy(mlir::ModuleOp module, Factors &factors,
               const Congruence &classes, const Mesh &mesh, ZeroStage zero,
               SearchEffort &effort, bool parts = false);

} // namespace tessera::sharding
