// From a mesh to a strategy: which sharding groups its axes shard.
#pragma once
#include "passes/sharding/Shardings.h"
#include "llvm/Support/Error.h"

namespace tessera::sharding {

/// What the solver changed in the strategy by sharding groups.
struct SolverEffect {
  unsigned nodes = 0;   ///< ops and arguments for which it chose
  unsigned changed = 0; ///< of them sharded otherwise; 0 if nothing is gained
  /// Estimated seconds of a step.
  double before = 0, after = 0;
  bool isOptimal = false; ///< proven optimal for the solver's problem
  bool failed = false;    ///< no choice, or one that cannot be built
};

struct SearchOptions {
  ZeroStage zero = ZeroStage::none;
  bool opByOp = true; ///< the solver may shard single ops differently
  /// Collective matmul will overlap collectives over `tensor` with matmuls: the
  /// search gives them almost no cost.
  bool parts = false;
  /// How many devices of `tensor` shard the width of an expert, and how many of
  /// `context` have the same experts: 1, or the size of the axis. 0: what
  /// decreases the estimate, and all.
  int64_t expertTensor = 0, expertContext = 0;
};

/// The axes along which devices have different experts: `expert`, and those of
/// which one device alone has an expert. Those of size 1 are left out.
llvm::SmallVector<unsigned, 2> axesOfExperts(const Mesh &mesh,
                                             const SearchOptions &options);

/// How much a search evaluated.
struct SearchEffort {
  uint64_t strategies = 0;
  /// How many times the plan of an op was computed.
  uint64_t decisions = 0;
  std::optional<SolverEffect> solved = {};
};

/// `data` and `replicate` shard sequences, `context` tokens, `tensor` the
/// groups that decrease the estimate most, one after another, and then single
/// ops where that is cheaper. Tokens may be split into two factors, so that a
/// device has every n-th of them. `classes` are those of `factors`. Adds to
/// `effort`.
mlir::FailureOr<Strategy>
chooseStrategy(mlir::ModuleOp module, Factors &factors,
               const Congruence &classes, const Mesh &mesh,
               const SearchOptions &options, SearchEffort &effort);

} // namespace tessera::sharding
