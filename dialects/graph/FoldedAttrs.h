// How a module says that some of its layers stand for others (passes/folding).
#pragma once
#include "llvm/ADT/StringRef.h"

namespace tessera::graph {

/// On a module, array<i64>: the first layer of a row of equal ones, how many
/// are repeated as one, and how many times, 5 or more. Of these units the
/// module has the first three and the last.
inline constexpr llvm::StringLiteral kFoldedAttr = "graph.folded";
/// On ops, arguments and results of the third unit, i64: for how many units it
/// stands, itself included.
inline constexpr llvm::StringLiteral kTimesAttr = "graph.times";

} // namespace tessera::graph
