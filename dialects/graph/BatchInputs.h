// All inputs of training programs that belong to the tokens of a batch. Apart
// from GraphOps.h, since few files ask for them.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "llvm/ADT/STLExtras.h"

namespace tessera::graph {

/// Those of losses that estimate advantages, in addition to kBatchInputs:
///   rewards  f32: what a token earned, of an answer at its last one
///   values   f32: by a value head before the update, of what follows the token
inline constexpr llvm::StringLiteral kAdvantageInputs[] = {"rewards", "values"};

inline auto batchInputs() {
  return llvm::concat<const llvm::StringLiteral>(kBatchInputs,
                                                 kAdvantageInputs);
}

inline bool isBatchInput(llvm::StringRef name) {
  return llvm::is_contained(kBatchInputs, name) ||
         llvm::is_contained(kAdvantageInputs, name);
}

} // namespace tessera::graph
