#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/schedule/BlockGraph.h"
#include "passes/schedule/Schedule.h"
#include "passes/schedule/StartOrder.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::schedule;

namespace tessera {
#define GEN_PASS_DEF_ORDERCOLLECTIVES
#include "passes/schedule/Passes.h.inc"
} // namespace tessera

// Of loops and functions that hold collectives, in program order: the same list
// for all programs that do the same together.
static SmallVector<Block *> blocksOf(ModuleOp module) {
  SmallVector<Block *> blocks;
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (hasStarts(op))
      blocks.push_back(&op->getRegion(0).front());
  });
  return blocks;
}

static bool isDecided(ModuleOp module) {
  return module
      .walk([](Operation *op) {
        return op->hasAttr(dist::kStartAttr) ? WalkResult::interrupt()
                                             : WalkResult::advance();
      })
      .wasInterrupted();
}

LogicalResult tessera::orderCollectives(ArrayRef<ModuleOp> shares) {
  SmallVector<SmallVector<Block *>> blocks;
  for (ModuleOp module : shares)
    blocks.push_back(blocksOf(module));
  for (ArrayRef<Block *> other : blocks)
    if (other.size() != blocks.front().size())
      return ModuleOp(shares.front())
          .emitError(
              "has collectives in other functions or loops than the program of "
              "other devices; all of them must do the same in one order");
  for (size_t i = 0; i < blocks.front().size(); ++i) {
    SmallVector<Block *> same;
    for (ArrayRef<Block *> other : blocks)
      same.push_back(other[i]);
    if (failed(decideStarts(same)))
      return failure();
  }
  return success();
}

namespace {
class OrderCollectivesPass
    : public tessera::impl::OrderCollectivesBase<OrderCollectivesPass> {
  void runOnOperation() override {
    // Where there are several programs, the driver asked for all of them.
    if (!isDecided(getOperation()) && failed(orderCollectives(getOperation())))
      signalPassFailure();
  }
};
} // namespace
