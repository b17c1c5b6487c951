// The cluster for which costs of a program are estimated, as the cost models of
// hardware/ take it.
#pragma once
#include "dialects/dist/DistOps.h"
#include "hardware/CollectiveCost.h"

namespace tessera::dist {

/// The attribute `dist.cluster` of a module.
ClusterAttr toAttr(mlir::MLIRContext *context,
                   const hardware::ClusterRates &rates);

/// `dist.cluster` of the module of `op`, or the default without it.
hardware::ClusterRates ratesOf(mlir::Operation *op);

/// The devices along `axes`, of which the mesh's last one varies fastest. If
/// axes are not adjacent, a group as far apart as along the nearest.
planner::RankGroup groupOf(MeshOp mesh, llvm::ArrayRef<AxisRefAttr> axes);

} // namespace tessera::dist
