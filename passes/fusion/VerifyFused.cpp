// The postcondition of fusion.
#include "dialects/dist/DistOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/fusion/Fusion.h"
#include "passes/fusion/FusionGraph.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace tessera {
#define GEN_PASS_DEF_VERIFYFUSED
#include "passes/fusion/Passes.h.inc"
} // namespace tessera

template <typename Op> static size_t count(ClusterOp cluster) {
  return llvm::range_size(cluster.getBody().front().getOps<Op>());
}

static LogicalResult verifyCluster(ClusterOp cluster) {
  auto expect = [&](size_t found, ClusterKind kind,
                    StringRef what) -> LogicalResult {
    size_t wanted = cluster.getKind() == kind;
    if (found == wanted)
      return success();
    return cluster.emitError()
           << "cluster of kind " << stringifyClusterKind(cluster.getKind())
           << " holds " << found << " " << what << ", expected " << wanted;
  };
  if (failed(expect(count<EinsumOp>(cluster), ClusterKind::contraction,
                    "contractions")) ||
      failed(expect(count<AttentionOp>(cluster), ClusterKind::attention,
                    "attentions")))
    return failure();
  if (failed(expect(count<PagedAttentionOp>(cluster),
                    ClusterKind::paged_attention, "paged attentions")))
    return failure();
  if (failed(expect(count<GroupedMatmulOp>(cluster) +
                        count<GroupedOuterOp>(cluster),
                    ClusterKind::grouped, "grouped products")))
    return failure();
  return expect(count<AttentionGradOp>(cluster), ClusterKind::attention_grad,
                "gradients of attention");
}

static LogicalResult verifyOp(Operation *op) {
  if (auto cluster = dyn_cast<ClusterOp>(op))
    return verifyCluster(cluster);
  if (auto slice = dyn_cast<SliceOp>(op); slice && !hasAddress(slice))
    return op->emitError(
        "slice has gaps or does not start at a multiple of 64 bytes, "
        "but is not in a cluster");
  if (auto concat = dyn_cast<ConcatOp>(op); concat && isStack(concat))
    return success();
  if (isa<LoopOp, YieldOp, ConstantOp, ReshapeOp, SliceOp, DynamicSliceOp,
          DynamicUpdateOp, dist::PackOp, func::ReturnOp>(op) ||
      isCollective(op))
    return success();
  return op->emitError() << "'" << op->getName() << "' is not in a cluster";
}

namespace {

class VerifyFusedPass : public tessera::impl::VerifyFusedBase<VerifyFusedPass> {
  void runOnOperation() override {
    bool ok = true;
    for (auto function : getOperation().getOps<func::FuncOp>())
      function.getBody().walk<WalkOrder::PreOrder>([&](Operation *op) {
        ok &= succeeded(verifyOp(op));
        return isa<ClusterOp>(op) ? WalkResult::skip() : WalkResult::advance();
      });
    if (!ok)
      signalPassFailure();
  }
};

} // namespace
