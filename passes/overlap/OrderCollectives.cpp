#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/overlap/BlockGraph.h"
#include "passes/overlap/Overlap.h"
#include "passes/overlap/StartOrder.h"
#include "passes/sharding/Placement.h"
#include <map>

using namespace mlir;
using namespace tessera;
using namespace tessera::overlap;

namespace tessera {
#define GEN_PASS_DEF_ORDERCOLLECTIVES
#include "passes/overlap/Passes.h.inc"
} // namespace tessera

// The blocks of loops and functions that contain collectives, in program order:
// equal for all programs with the same collectives.
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

// The index of the module's devices along the axis pipe.
static int64_t stageOf(ModuleOp module) {
  auto devices = module->getAttrOfType<DenseI64ArrayAttr>(dist::kDevicesAttr);
  auto meshes = module.getOps<dist::MeshOp>();
  if (!devices || devices.empty() || meshes.empty())
    return 0;
  sharding::Mesh mesh(*meshes.begin());
  std::optional<unsigned> pipe = mesh.find(dist::kPipeAxis);
  return pipe ? mesh.coordinatesOf(devices[0])[*pipe] : 0;
}

// Orders the collectives of devices of one pipeline rank.
static LogicalResult orderAlike(ArrayRef<ModuleOp> shares) {
  SmallVector<SmallVector<Block *>> blocks;
  for (ModuleOp module : shares)
    blocks.push_back(blocksOf(module));
  for (ArrayRef<Block *> other : blocks)
    if (other.size() != blocks.front().size())
      return ModuleOp(shares.front())
          .emitError(
              "has collectives in other functions or loops than the program of "
              "other devices; all programs must have the same collectives in "
              "one order");
  for (size_t i = 0; i < blocks.front().size(); ++i) {
    SmallVector<Block *> same;
    for (ArrayRef<Block *> other : blocks)
      same.push_back(other[i]);
    if (failed(decideStarts(same)))
      return failure();
  }
  return success();
}

LogicalResult tessera::orderCollectives(ArrayRef<ModuleOp> shares) {
  std::map<int64_t, SmallVector<ModuleOp>> stages;
  for (ModuleOp module : shares)
    stages[stageOf(module)].push_back(module);
  for (const auto &[stage, alike] : stages)
    if (failed(orderAlike(alike)))
      return failure();
  return success();
}

namespace {
class OrderCollectivesPass
    : public tessera::impl::OrderCollectivesBase<OrderCollectivesPass> {
  void runOnOperation() override {
    // With several programs the driver has called orderCollectives on all.
    if (!isDecided(getOperation()) && failed(orderCollectives(getOperation())))
      signalPassFailure();
  }
};
} // namespace
