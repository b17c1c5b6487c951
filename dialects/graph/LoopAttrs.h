// Attributes of loops, on which their planning depends.
#pragma once
#include "dialects/graph/GraphOps.h"

namespace tessera::graph {

/// On a graph.loop, i64: of how many trips values are in flight at once. What
/// it carries of one trip is free when as many have followed, so planning
/// writes that many trips one after the other (`unroll-loops`), and no value is
/// copied from one trip to the next.
inline constexpr llvm::StringLiteral kInFlightAttr = "graph.in_flight";

/// What the attribute says; 1 where it says nothing.
inline int64_t tripsInFlight(LoopOp loop) {
  auto trips = loop->getAttrOfType<mlir::IntegerAttr>(kInFlightAttr);
  return trips && trips.getInt() > 1 ? trips.getInt() : 1;
}

} // namespace tessera::graph
