// The pass: sums with a scatter become scatters onto the sum.
#include "dialects/graph/Build.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "passes/autodiff/Autodiff.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_SINKSCATTERS
#include "passes/autodiff/Passes.h.inc"
} // namespace tessera

static bool isZero(Value value) {
  DenseElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)) || !elements.isSplat() ||
      !isa<FloatType>(elements.getElementType()))
    return false;
  return elements.getSplatValue<APFloat>().isPosZero();
}

// x + (base with rows added) = (x + base) with rows added
static LogicalResult sinkScatter(graph::AddOp add, PatternRewriter &rewriter) {
  for (auto [side, other] : {std::pair(add.getLhs(), add.getRhs()),
                             std::pair(add.getRhs(), add.getLhs())}) {
    auto scatter = side.getDefiningOp<graph::ScatterAddOp>();
    if (!scatter || !scatter->hasOneUse())
      continue;
    Value base = scatter.getBase();
    Value sum = isZero(base)
                    ? Value(other)
                    : graph::Emitter(rewriter, add.getLoc()).add(other, base);
    rewriter.replaceOpWithNewOp<graph::ScatterAddOp>(
        add, add.getType(), sum, scatter.getIds(), scatter.getUpdates());
    return success();
  }
  return failure();
}

namespace {

struct SinkScatters : tessera::impl::SinkScattersBase<SinkScatters> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add(sinkScatter);
    if (failed(
            applyPatternsAndFoldGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
