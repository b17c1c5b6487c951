#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/fusion/Fusion.h"

#include "dialects/graph/GraphExchangeOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace tessera {
#define GEN_PASS_DEF_DECOMPOSECOMPOSITES
#include "passes/fusion/Passes.h.inc"
} // namespace tessera

// A product of one row has no rows to divide among groups.
template <typename Op> static bool hasRows(Op op) {
  ArrayRef<int64_t> shape = tensorType(op.getLhs()).getShape();
  return shape[shape.size() - 2] > 1;
}

static bool hasSkeleton(Operation *op) {
  if (auto grouped = dyn_cast<GroupedMatmulOp>(op))
    return hasRows(grouped);
  if (auto grouped = dyn_cast<GroupedOuterOp>(op))
    return hasRows(grouped);
  // The skeletons of attention multiply f32 and bf16 alone.
  return isa<AttentionOp, AttentionGradOp, PagedAttentionOp>(op) &&
         !tensorType(op->getOperand(0)).getElementType().isF64();
}

// Replaces one composite; composites that it is made of join `work`.
static void decompose(Decomposable op, SmallVectorImpl<Decomposable> &work) {
  OpBuilder builder(op);
  Operation *before = op->getPrevNode();
  SmallVector<Value> results = op.decompose(builder);
  auto origin = builder.getStringAttr(op->getName().stripDialect());
  Operation *first = before ? before->getNextNode() : &op->getBlock()->front();
  for (Operation *made = first; made != op; made = made->getNextNode()) {
    if (!isa<ConstantOp>(made))
      made->setAttr(kOriginAttr, origin);
    if (auto composite = dyn_cast<Decomposable>(made);
        composite && !hasSkeleton(made))
      work.push_back(composite);
  }
  op->replaceAllUsesWith(results);
  op->erase();
}

namespace {

class DecomposeCompositesPass
    : public tessera::impl::DecomposeCompositesBase<DecomposeCompositesPass> {
  void runOnOperation() override {
    // On one device all rows are exchanged in one round.
    getOperation()->walk([](LoopOp loop) {
      if (!loop.getOverflow())
        return;
      loop.replaceAllUsesWith(loop.getInits());
      loop.erase();
    });
    SmallVector<Decomposable> work;
    getOperation()->walk([&](Decomposable op) {
      if (!hasSkeleton(op))
        work.push_back(op);
    });
    while (!work.empty())
      decompose(work.pop_back_val(), work);
  }
};

} // namespace
