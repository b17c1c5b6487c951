// When loops over microbatches run, where the ops behind and between them do,
// and which of their values ranks have to give each other.
#pragma once
#include "passes/stages/ProgramCut.h"
#include "llvm/ADT/StringMap.h"
#include <map>

namespace tessera::stages {

/// Who has a tensor of the state, by its name.
using StateRanks = llvm::StringMap<Ranks>;

/// Where a value is, or a loop runs. Levels count exchanges between ranks: a
/// value of level n is there when the n-th one is done, and so is what a loop
/// of level n reads.
struct Place {
  bool isFree = false; ///< of inputs alone: everywhere, if somebody asks
  Ranks ranks;         ///< otherwise
  int level = 0;
};

class ResultLocations {
public:
  /// Follows the ops from the first loop on. `blocks` says where those of any
  /// program want state; what they do not want, `state` learns to be where it
  /// is used.
  ResultLocations(ProgramCut &cut, const StateRanks &blocks, StateRanks &state);
  /// Makes the function's results be where all of them want them; `state` is
  /// known now.
  void finish(const StateRanks &state);

  /// Null: free.
  const Place *placeOf(mlir::Operation *op) const;
  Place placeOf(mlir::Value value) const;
  int levels() const { return last + 1; }
  /// Values of this level that ranks without them get, once all of that level
  /// is computed.
  llvm::ArrayRef<mlir::Value> sharedBehind(int level) const;

private:
  void place(mlir::Operation *op, StateRanks &state);
  void placeLoop(const LoopCut &loop);
  Place placeFree(mlir::Value value) const;
  /// The level at which everybody has it.
  int share(mlir::Value value);
  void use(mlir::Value value, const Ranks &where, StateRanks &state);
  void useOnAll(mlir::Operation *terminator, StateRanks &state);

  ProgramCut &cut;
  Ranks everybody;
  const StateRanks &blocks;
  llvm::DenseMap<mlir::Operation *, Place> locations;
  std::map<int, Values> shared; ///< by level
  int last = 0;
};

} // namespace tessera::stages
