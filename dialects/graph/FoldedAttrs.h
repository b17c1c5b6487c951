// Attributes of a module whose equal layers are folded (passes/folding).
#pragma once
#include "dialects/graph/GraphOps.h"

namespace tessera::graph {

/// On a module, array<i64>: the first layer of a row of equal ones, how many
/// are repeated as one, and how many times, 5 or more. Of these units the
/// module has the first three and the last.
inline constexpr llvm::StringLiteral kFoldedAttr = "graph.folded";
/// On ops, arguments and results of the third unit, until fusion, i64: how many
/// units it represents, itself included.
inline constexpr llvm::StringLiteral kRepeatCountAttr = "graph.repeat_count";

/// How many units the attribute says; 1 where it says nothing.
inline int64_t repeatCountOf(mlir::Attribute attr) {
  auto times = llvm::dyn_cast_if_present<mlir::IntegerAttr>(attr);
  if (!times || !times.getType().isSignlessInteger(64) || times.getInt() < 1 ||
      times.getInt() > kMostLayers)
    return 1;
  return times.getInt();
}

} // namespace tessera::graph
