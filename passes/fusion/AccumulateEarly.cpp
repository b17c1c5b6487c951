#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/fusion/Fusion.h"
#include "passes/fusion/TopologicalOrder.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_ACCUMULATEEARLY
#include "passes/fusion/Passes.h.inc"
} // namespace tessera

// Whether the loop only carries the cluster's results on.
static bool isCarriedOn(graph::ClusterOp cluster) {
  Operation *yield = cluster->getBlock()->getTerminator();
  return llvm::all_of(cluster->getUsers(),
                      [&](Operation *user) { return user == yield; });
}

// The last op of the block whose results the op reads; null if there is none.
static Operation *lastProducer(Operation *op) {
  Operation *last = nullptr;
  for (Value operand : op->getOperands()) {
    Operation *producer = operand.getDefiningOp();
    if (producer && producer->getBlock() == op->getBlock() &&
        (!last || last->isBeforeInBlock(producer)))
      last = producer;
  }
  return last;
}

// The cluster that follows `op` after `count` others, or null near the block's
// end. Time to reduce while they run: an add right after a collective would
// make it urgent (passes/overlap), and what it sends would be computed first.
static Operation *afterClusters(Operation *op, int64_t count) {
  for (op = op->getNextNode(); op; op = op->getNextNode())
    if (isa<graph::ClusterOp>(op) && count-- <= 0)
      return op;
  return nullptr;
}

namespace {
struct AccumulateEarly : tessera::impl::AccumulateEarlyBase<AccumulateEarly> {
  using Base::Base;
  void runOnOperation() override {
    getOperation()->walk([&](graph::LoopOp loop) {
      auto clusters =
          llvm::to_vector(loop.getBody().front().getOps<graph::ClusterOp>());
      for (graph::ClusterOp cluster : clusters) {
        if (!isCarriedOn(cluster) || cluster->getNumResults() == 0 ||
            graph::detail::countBytes(cluster->getResult(0)) < bytes)
          continue;
        Operation *producer = lastProducer(cluster);
        if (!producer || !isCollective(producer))
          continue;
        Operation *place = afterClusters(producer, distance);
        if (place && place->isBeforeInBlock(cluster))
          cluster->moveBefore(place);
      }
    });
  }
};
} // namespace
