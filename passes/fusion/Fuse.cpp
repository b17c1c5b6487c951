// The pass: groups of ops by rule, then a cluster for each.
#include "dialects/graph/Build.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Matchers.h"
#include "passes/fusion/Fusion.h"
#include "passes/fusion/FusionRules.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace tessera {
#define GEN_PASS_DEF_FUSE
#include "passes/fusion/Passes.h.inc"
} // namespace tessera

// Free ops without uses, and members whose results the clusters replaced.
static void eraseDead(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (op.use_empty() && isMemoryEffectFree(&op) &&
        !op.hasTrait<OpTrait::IsTerminator>() && !isa<ClusterOp>(op))
      op.erase();
}

// A constant of several values as a concatenation of runs of one value each:
// those are what kernels can make.
static void splitConstant(ConstantOp op) {
  auto values = cast<DenseElementsAttr>(op.getValue());
  OpBuilder builder(op);
  Emitter e(builder, op.getLoc());
  RankedTensorType type = tensorType(op);
  SmallVector<Value> runs;
  auto all = llvm::to_vector(values.getValues<Attribute>());
  if (all.empty()) {
    op.replaceAllUsesWith(e.zeros(type));
    op.erase();
    return;
  }
  for (size_t i = 0, end; i < all.size(); i = end) {
    for (end = i + 1; end < all.size() && all[end] == all[i];)
      ++end;
    auto run = RankedTensorType::get({int64_t(end - i)}, type.getElementType());
    runs.push_back(builder.create<ConstantOp>(
        op.getLoc(), run,
        cast<ElementsAttr>(DenseElementsAttr::get(run, all[i]))));
  }
  op.replaceAllUsesWith(e.reshape(
      runs.size() == 1 ? runs[0] : e.concat(runs, 0), type.getShape()));
  op.erase();
}

static void splitConstants(Block &block) {
  for (auto op : llvm::make_early_inc_range(block.getOps<ConstantOp>()))
    if (auto values = dyn_cast<DenseElementsAttr>(op.getValue());
        values && !values.isSplat())
      splitConstant(op);
}

// Whether planning has an address for the op's result: zeros are a fill.
static bool staysOutside(Operation *op) {
  if (isa<ConstantOp>(op))
    return matchPattern(op, m_Zero()) || matchPattern(op, m_PosZeroFloat());
  if (isa<ReshapeOp>(op))
    return true;
  auto slice = dyn_cast<SliceOp>(op);
  return slice && isContiguous(slice);
}

// Free ops whose results somebody else than a cluster needs.
static void storeFreeOps(Block &block) {
  SmallVector<Operation *> ops;
  for (Operation &op : block)
    if (isFree(&op) && !staysOutside(&op))
      ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops)) {
    if (!op->use_empty())
      buildCluster(op);
    op->erase();
  }
}

static void buildClusters(FusionGraph &graph) {
  for (unsigned id : graph.liveGroups()) {
    if (!graph.group(id).kind || buildCluster(graph, id))
      continue;
    for (unsigned single : graph.dissolve(id))
      buildCluster(graph, single);
  }
}

static void fuseBlock(Block &block) {
  splitConstants(block);
  eraseDead(block);
  FusionGraph graph(block);
  applyFusionRules(graph);
  buildClusters(graph);
  eraseDead(block);
  storeFreeOps(block);
  eraseDead(block);
  sortTopologically(&block);
}

namespace {

class FusePass : public tessera::impl::FuseBase<FusePass> {
  void runOnOperation() override {
    // Innermost loops first: what they read from outside is then final.
    SmallVector<Block *> blocks;
    getOperation()->walk(
        [&](LoopOp loop) { blocks.push_back(&loop.getBody().front()); });
    blocks.push_back(&getOperation().getBody().front());
    for (Block *block : blocks)
      fuseBlock(*block);
  }
};

} // namespace
