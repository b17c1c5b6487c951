// Writes placements into the IR as attributes and reshards.
#pragma once
#include "passes/sharding/Shardings.h"

namespace tessera::sharding {

/// Inserts the mesh, attributes on all values that are not replicated, and a
/// dist.reshard wherever an op requires another placement than a value has.
void writeShardings(mlir::ModuleOp module, const Shardings &shardings,
                    const Mesh &mesh);

} // namespace tessera::sharding
