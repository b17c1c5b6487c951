// Equal placements at one address, so that comparison, hashing and caching work
// on pointers.
#pragma once
#include "passes/sharding/Placement.h"
#include <unordered_set>

namespace tessera::sharding {

class PlacementPool {
public:
  /// Lives as long as the pool.
  const Placement *intern(Placement placement) {
    return &*placements.insert(std::move(placement)).first;
  }

private:
  struct Hash {
    size_t operator()(const Placement &placement) const;
  };
  std::unordered_set<Placement, Hash> placements;
};

} // namespace tessera::sharding
