// From a mesh to a strategy: which colors its axes cut.
#pragma once
#include "passes/sharding/Shardings.h"
#include "llvm/Support/Error.h"

namespace tessera::sharding {

/// What the solver did to the strategy that colors gave.
struct SolverEffect {
  unsigned nodes = 0;   ///< ops and arguments among which it chose
  unsigned changed = 0; ///< of them cut otherwise; 0 where that gains nothing
  /// Of a step by the estimate, in seconds.
  double before = 0, after = 0;
  bool isOptimal = false; ///< of the problem; proven
  bool failed = false;    ///< no choice, or one that cannot be built
};

struct SearchOptions {
  ZeroStage zero = ZeroStage::none;
  bool opByOp = true; ///< the solver may cut single ops otherwise
  /// What products gather and scatter over `tensor` is about to travel beside
  /// them, and is priced next to nothing.
  bool parts = false;
};

/// What a search looked at.
struct SearchEffort {
  uint64_t strategies = 0;
  /// Ops of which it was found out how a strategy cuts them.
  uint64_t decisions = 0;
  std::optional<SolverEffect> solved = {};
};

/// `data` on sequences, `context` on tokens, `tensor` on what the estimate
/// likes best, one color after another, and then op by op where that is
/// cheaper. Tokens may become two factors, so that a device has every n-th of
/// them. `classes` are those of `factors`. Adds to `effort`.
mlir::FailureOr<Strategy>
chooseStrategy(mlir::ModuleOp module, Factors &factors,
               const Congruence &classes, const Mesh &mesh,
               const SearchOptions &options, SearchEffort &effort);

} // namespace tessera::sharding
