// The pass: groups of ops by rule, then a cluster for each.
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
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

// Whether planning has an address for the op's result: zeros are a fill.
static bool staysOutside(Operation *op) {
  if (isa<ConstantOp>(op))
    return matchPattern(op, m_Zero()) || matchPattern(op, m_PosZeroFloat());
  if (isa<ReshapeOp>(op))
    return true;
  auto slice = dyn_cast<SliceOp>(op);
  return slice && hasAddress(slice);
}

// Free ops whose results are used outside clusters, and tables: a kernel of
// their own writes them. Users come first, since a view without uses left needs
// nothing stored.
static void storeFreeOps(Block &block, OpPositions &slots,
                         ComputableClusters &computable) {
  SmallVector<Operation *> ops;
  for (Operation &op : block)
    if (isFree(&op) || isa<ConstantOp>(op))
      ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops)) {
    if (!op->use_empty() && staysOutside(op))
      continue;
    if (!op->use_empty())
      buildCluster(op, slots, computable);
    op->erase();
  }
}

static void buildClusters(FusionGraph &graph, OpPositions &slots,
                          ComputableClusters &computable) {
  for (unsigned id : graph.liveGroups()) {
    if (!graph.group(id).kind ||
        succeeded(buildCluster(graph, id, slots, computable)))
      continue;
    // Each op alone is always computable.
    for (unsigned single : graph.dissolve(id))
      (void)buildCluster(graph, single, slots, computable);
  }
}

// Whether the program reaches `one` after `other`, in the same pass over
// layers.
static bool isLater(LayerAttr one, LayerAttr other) {
  return one.getDirection() == other.getDirection() &&
         (one.isForward() ? one.getIndex() > other.getIndex()
                          : one.getIndex() < other.getIndex());
}

// A cluster with ops of two layers is the later one's. So are clusters that
// read it, or the ops of a layer would not follow one another.
static void followLayers(Block &block) {
  for (auto cluster : block.getOps<ClusterOp>()) {
    auto own = cluster->getAttrOfType<LayerAttr>(kLayerAttr);
    for (Value input : cluster.getInputs()) {
      while (isa_and_nonnull<ReshapeOp, SliceOp>(input.getDefiningOp()))
        input = input.getDefiningOp()->getOperand(0);
      auto producer = input.getDefiningOp<ClusterOp>();
      auto layer = producer ? producer->getAttrOfType<LayerAttr>(kLayerAttr)
                            : LayerAttr();
      if (own && layer && isLater(layer, own))
        own = layer;
    }
    if (own)
      cluster->setAttr(kLayerAttr, own);
  }
}

static void fuseBlock(Block &block, ComputableClusters &computable,
                      bool explain) {
  eraseDead(block);
  OpPositions slots = positionsOf(block);
  FusionGraph graph(block);
  applyFusionRules(graph);
  if (explain)
    explainStores(graph);
  buildClusters(graph, slots, computable);
  eraseDead(block);
  storeFreeOps(block, slots, computable);
  eraseDead(block);
  orderByPosition(block, slots);
  followLayers(block);
}

namespace {

struct FusePass : tessera::impl::FuseBase<FusePass> {
  using Base::Base;
  void runOnOperation() override {
    // Innermost loops first: their inputs are then final.
    SmallVector<Block *> blocks;
    getOperation()->walk(
        [&](LoopOp loop) { blocks.push_back(&loop.getBody().front()); });
    blocks.push_back(&getOperation().getBody().front());
    ComputableClusters computable;
    for (Block *block : blocks)
      fuseBlock(*block, computable, explain);
  }
};

} // namespace
