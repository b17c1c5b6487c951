// Whether an op is in the producer's or the consumers' code; for the verifiers
// only.
#pragma once
#include "dialects/tile/TileOps.h"

namespace tessera::tile {

/// An error unless `op` is in the producer's or the consumers' code.
mlir::LogicalResult verifyRole(mlir::Operation *op, bool isConsumer);

} // namespace tessera::tile
