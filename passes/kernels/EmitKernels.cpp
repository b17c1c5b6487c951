// The pass: every cluster through its skeleton.
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/fusion/FusionGraph.h"
#include "passes/kernels/KernelPlan.h"
#include "passes/kernels/LaunchCache.h"
#include "passes/kernels/Passes.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace tessera {
#define GEN_PASS_DEF_EMITKERNELS
#include "passes/kernels/Passes.h.inc"
} // namespace tessera

static Skeleton skeletonFor(ClusterKind kind) {
  switch (kind) {
  case ClusterKind::elementwise:
  case ClusterKind::gather:
    return tileElementwise;
  case ClusterKind::row:
    return tileRow;
  case ClusterKind::column:
    return tileColumn;
  case ClusterKind::contraction:
  case ClusterKind::grouped:
    return tileContraction;
  case ClusterKind::attention:
    return tileAttention;
  case ClusterKind::attention_grad:
    return tileAttentionGrad;
  case ClusterKind::paged_attention:
    return tilePagedAttention;
  case ClusterKind::scatter:
    return tileScatter;
  case ClusterKind::reduce_all:
    return tileReduceAll;
  case ClusterKind::sample:
    return tileSample;
  }
  llvm_unreachable("all kinds are handled");
}

// The launches of a cluster, which are before it, get its layer.
static void setLayer(ClusterOp cluster, Operation *before) {
  Attribute layer = cluster->getAttr(kLayerAttr);
  if (!layer)
    return;
  for (Operation *op = cluster->getPrevNode(); op != before;
       op = op->getPrevNode())
    op->setAttr(kLayerAttr, layer);
}

static llvm::Expected<SmallVector<Value>> emit(ClusterOp cluster,
                                               TilingContext &context) {
  if (llvm::Error error = refuseStrayPlan(cluster))
    return std::move(error);
  if (readsQuantizedTable(cluster))
    return tileQuantizedTable(cluster, context);
  return skeletonFor(cluster.getKind())(cluster, context);
}

namespace {

class EmitKernelsPass : public tessera::impl::EmitKernelsBase<EmitKernelsPass> {
  using EmitKernelsBase::EmitKernelsBase;

  LogicalResult initialize(MLIRContext *context) override {
    return lookupTargets(targets,
                         NameLoc::get(StringAttr::get(context, "emit-kernels")),
                         chosen);
  }

  // Drops the modules of targets with matrix registers that no kernel uses.
  void dropIdleModules() {
    bool hasOthers = llvm::any_of(
        chosen, [](const TileTarget &t) { return !t.gpu && !t.matrixTiles; });
    for (auto nested :
         llvm::make_early_inc_range(getOperation().getOps<ModuleOp>())) {
      auto name = nested->getAttrOfType<StringAttr>(kTargetAttr);
      std::optional<TileTarget> target =
          name ? lookupTileTarget(name.getValue()) : std::nullopt;
      if (!hasOthers || !target || !target->matrixTiles)
        continue;
      WalkResult found = nested->walk(
          [](tile::MmaStagedOp) { return WalkResult::interrupt(); });
      if (!found.wasInterrupted())
        nested.erase();
    }
  }

  void runOnOperation() override {
    TilingContext context(getOperation(), chosen, allVariants);
    SmallVector<ClusterOp> clusters;
    getOperation().walk(
        [&](ClusterOp cluster) { clusters.push_back(cluster); });
    LaunchCache cache;
    for (ClusterOp cluster : clusters) {
      Operation *before = cluster->getPrevNode();
      if (auto repeated = cache.repeat(cluster)) {
        setLayer(cluster, before);
        cluster.replaceAllUsesWith(*repeated);
        cluster.erase();
        continue;
      }
      llvm::Expected<SmallVector<Value>> results = emit(cluster, context);
      if (!results) {
        cluster.emitError()
            << "cluster '" << cluster.getName()
            << "' cannot be tiled: " << llvm::toString(results.takeError());
        return signalPassFailure();
      }
      setLayer(cluster, before);
      cluster.replaceAllUsesWith(*results);
      cache.take(cluster, before, *results);
    }
    dropIdleModules();
    getOperation()->removeAttr(kTargetsAttr);
  }

  SmallVector<TileTarget> chosen;
};

} // namespace
