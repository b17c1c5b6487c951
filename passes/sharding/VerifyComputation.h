// Whether one op's operands and results are placed as its rule allows.
#pragma once
#include "passes/sharding/PlacementReader.h"
#include "passes/sharding/Rule.h"

namespace tessera::sharding {

/// Dimensions that are one loop are cut alike, those that must be whole are not
/// cut, operands are parts of sums only where the op is linear in them, and
/// results are parts of exactly those sums that follow. Errors at `op` name
/// both sides.
mlir::LogicalResult verifyComputation(mlir::Operation *op, const OpRule &rule,
                                      const PlacementReader &reader);

} // namespace tessera::sharding
