// A device and its links in round figures. Estimates by them only rank what a
// compiler may choose from; parallelism/planner knows a cluster's own.
#pragma once
#include "dialects/dist/DistOps.h"

namespace tessera::dist {

inline constexpr double kFlopsPerSecond = 400e12, kBytesPerSecond = 3e12;

/// By LinkTier: bytes a second and seconds a message, one way.
inline constexpr double kLinkBytes[] = {100e9, 300e9, 50e9, 25e9};
inline constexpr double kLatency[] = {3e-6, 3e-6, 8e-6, 15e-6};

} // namespace tessera::dist
