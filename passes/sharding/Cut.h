// How one op is sharded, while that is decided. Internal to PlanOp and
// PlanRows.
#pragma once
#include "passes/sharding/Shardings.h"

namespace tessera::sharding {

struct Shardings::Cut {
  Factors::Computation computation;
  llvm::SmallVector<DimPlacement> loops; ///< a factor for each atom
  /// Axes along which operands stay partial, and the set of operands that do.
  llvm::SmallVector<unsigned, 2> parts;
  std::optional<unsigned> linear;
  llvm::SmallVector<unsigned, 2> own; ///< axes of device-local row order
};

/// The dimension and factor that the axis shards.
inline std::optional<std::pair<unsigned, unsigned>>
findCut(const Placement &placement, unsigned axis) {
  for (auto [i, dim] : llvm::enumerate(placement.dims))
    for (auto [k, factor] : llvm::enumerate(dim))
      if (llvm::is_contained(factor.axes, axis))
        return std::pair(i, k);
  return std::nullopt;
}

} // namespace tessera::sharding
