// Decided placements as attributes and reshards.
#pragma once
#include "passes/sharding/Shardings.h"

namespace tessera::sharding {

/// Puts the mesh into the module, attributes on whatever is not whole, and a
/// dist.reshard wherever an op wants a value otherwise than it is.
void writeShardings(mlir::ModuleOp module, const Shardings &shardings,
                    const Mesh &mesh);

} // namespace tessera::sharding
