// When loops over microbatches run, on which ranks the ops between and after
// them run, and which values ranks exchange there.
#pragma once
#include "passes/stages/ProgramCut.h"
#include "llvm/ADT/StringMap.h"
#include <map>

namespace tessera::stages {

/// The ranks that have a tensor of state, by its name.
using StateRanks = llvm::StringMap<Ranks>;

/// Where a value is, or a loop runs. Levels count exchanges between ranks: a
/// value of level n, and all operands of a loop of level n, are available after
/// the n-th exchange.
struct Place {
  bool isFree = false; ///< depends only on inputs: computed where it is used
  Ranks ranks;         ///< otherwise
  int level = 0;
};

class ResultLocations {
public:
  /// Visits the ops from the first loop on. `blocks` has the ranks whose blocks
  /// use a tensor of state, in any program; for other state, adds the ranks
  /// that use it here to `state`.
  ResultLocations(ProgramCut &cut, const StateRanks &blocks, StateRanks &state);
  /// Moves the function's results to the ranks that return them; `state` is
  /// complete now.
  void finish(const StateRanks &state);

  /// Null if the op is free.
  const Place *placeOf(mlir::Operation *op) const;
  Place placeOf(mlir::Value value) const;
  int levels() const { return last + 1; }
  /// The values that are exchanged after this level is computed.
  llvm::ArrayRef<mlir::Value> sharedAfter(int level) const;

private:
  void place(mlir::Operation *op, StateRanks &state);
  void placeLoop(const LoopCut &loop);
  Place placeFree(mlir::Value value) const;
  /// The level at which all ranks have the value.
  int share(mlir::Value value);
  void use(mlir::Value value, const Ranks &where, StateRanks &state);
  void useOnAll(mlir::Operation *terminator, StateRanks &state);

  ProgramCut &cut;
  Ranks allRanks;
  const StateRanks &blocks;
  llvm::DenseMap<mlir::Operation *, Place> locations;
  std::map<int, Values> shared; ///< by level
  int last = 0;
};

} // namespace tessera::stages
