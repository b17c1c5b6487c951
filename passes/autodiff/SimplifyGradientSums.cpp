// The pass: sums of gradients that are zero nearly everywhere.
#include "dialects/graph/Build.h"
#include "dialects/graph/Constants.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "passes/autodiff/Autodiff.h"

using namespace mlir;
using namespace tessera;
using tessera::graph::shapeOf;

namespace tessera {
#define GEN_PASS_DEF_SIMPLIFYGRADIENTSUMS
#include "passes/autodiff/Passes.h.inc"
} // namespace tessera

//===--- scatters -------------------------------------------------------===//

// x + (base with rows added) = (x + base) with rows added
static LogicalResult sinkScatter(graph::AddOp add, PatternRewriter &rewriter) {
  for (auto [side, other] : {std::pair(add.getLhs(), add.getRhs()),
                             std::pair(add.getRhs(), add.getLhs())}) {
    auto scatter = side.getDefiningOp<graph::ScatterAddOp>();
    if (!scatter || !scatter->hasOneUse())
      continue;
    Value base = scatter.getBase();
    Value sum = graph::isZero(base)
                    ? Value(other)
                    : graph::Emitter(rewriter, add.getLoc()).add(other, base);
    rewriter.replaceOpWithNewOp<graph::ScatterAddOp>(add, sum, scatter.getIds(),
                                                     scatter.getUpdates());
    return success();
  }
  return failure();
}

//===--- pads -----------------------------------------------------------===//

// The dimension along which `second` begins where `first` ends; both cover the
// same range of all others.
static std::optional<int64_t> meetingDim(graph::PadOp first,
                                         graph::PadOp second) {
  std::optional<int64_t> dim;
  ArrayRef<int64_t> a = shapeOf(first.getInput()),
                    b = shapeOf(second.getInput());
  for (size_t i = 0; i < a.size(); ++i) {
    if (first.getLow()[i] == second.getLow()[i] && a[i] == b[i])
      continue;
    if (dim || first.getLow()[i] + a[i] != second.getLow()[i])
      return std::nullopt;
    dim = i;
  }
  return dim;
}

// The operands of a concatenation along `dim` without other uses.
static SmallVector<Value> partsOf(Value value, int64_t dim) {
  auto concat = value.getDefiningOp<graph::ConcatOp>();
  if (concat && concat->hasOneUse() &&
      static_cast<int64_t>(concat.getDim()) == dim)
    return llvm::to_vector_of<Value>(concat.getInputs());
  return {value};
}

// Two neighbours in zeros are their concatenation in zeros, or without any.
static LogicalResult joinPads(graph::AddOp add, PatternRewriter &rewriter) {
  for (auto [lhs, rhs] : {std::pair(add.getLhs(), add.getRhs()),
                          std::pair(add.getRhs(), add.getLhs())}) {
    auto first = lhs.getDefiningOp<graph::PadOp>();
    auto second = rhs.getDefiningOp<graph::PadOp>();
    if (!first || !second || !first->hasOneUse() || !second->hasOneUse())
      continue;
    std::optional<int64_t> dim = meetingDim(first, second);
    if (!dim)
      continue;
    graph::Emitter e(rewriter, add.getLoc());
    SmallVector<Value> parts = partsOf(first.getInput(), *dim);
    llvm::append_range(parts, partsOf(second.getInput(), *dim));
    Value joined = e.concat(parts, *dim);
    if (joined.getType() != add.getType())
      joined = e.pad(joined, first.getLow(), shapeOf(add.getResult()));
    rewriter.replaceOp(add, joined);
    return success();
  }
  return failure();
}

namespace {

struct SimplifyGradientSums
    : tessera::impl::SimplifyGradientSumsBase<SimplifyGradientSums> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add(sinkScatter);
    patterns.add(joinPads);
    if (failed(
            applyPatternsAndFoldGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
