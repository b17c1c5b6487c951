// Which kernel a contraction takes, as an attribute of its cluster.
#pragma once
#include "passes/kernels/contraction/Contraction.h"

namespace tessera {

struct KernelChoice {
  ContractionPlan plan;
  /// Whether the cluster's tile.plan differs from what we would choose: then no
  /// other tile is offered to the runtime.
  bool byHand = false;
};

/// The kernel of a contraction or grouped cluster for all targets of the
/// context: that of its `tile.plan`, if it has one. Fails as planContraction
/// does, and where `tile.plan` asks for a kernel that does not exist. Without
/// it, `bytes` says whether many rows are multiplied by quantized weights as
/// bytes, where there is such a kernel.
llvm::Expected<KernelChoice> chooseContraction(graph::ClusterOp cluster,
                                               const TilingContext &context,
                                               bool bytes = false);

/// The plan's choices, for `tile.plan`.
tile::ContractionPlanAttr choicesOf(const ContractionPlan &plan,
                                    const TilingContext &context,
                                    mlir::MLIRContext *mlir);

/// What multiplies in a GPU's kernel of the plan.
tile::Engine gpuEngine(const ContractionPlan &plan, const TileTarget &target);

} // namespace tessera
