// Verifies the placements of one op's operands and results against its rule.
#pragma once
#include "passes/sharding/PlacementReader.h"
#include "passes/sharding/Rule.h"

namespace tessera::sharding {

/// Dimensions of one loop are sharded alike, `whole` ones are not sharded,
/// operands are partial only where the op is linear in them, and results are
/// partial along exactly the axes that follow. Errors at `op` name both sides.
mlir::LogicalResult verifyComputation(mlir::Operation *op, const OpRule &rule,
                                      const PlacementReader &reader);

} // namespace tessera::sharding
