#include "dialects/graph/Build.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/fusion/Fusion.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace tessera {
#define GEN_PASS_DEF_MATERIALIZEINDUCTIONVARIABLES
#include "passes/fusion/Passes.h.inc"
} // namespace tessera

// Uses of the induction variable as a number; as an index it is not stored.
static SmallVector<OpOperand *> numberUses(LoopOp loop) {
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : loop.getInduction().getUses()) {
    if (auto slice = dyn_cast<DynamicSliceOp>(use.getOwner());
        slice && &use == &slice.getIndexMutable())
      continue;
    if (auto update = dyn_cast<DynamicUpdateOp>(use.getOwner());
        update && &use == &update.getIndexMutable())
      continue;
    uses.push_back(&use);
  }
  return uses;
}

namespace {

class MaterializeInductionVariablesPass
    : public tessera::impl::MaterializeInductionVariablesBase<
          MaterializeInductionVariablesPass> {
  void runOnOperation() override {
    Block &entry = getOperation().getBody().front();
    getOperation()->walk([&](LoopOp loop) {
      SmallVector<OpOperand *> uses = numberUses(loop);
      if (uses.empty())
        return;
      OpBuilder outside = OpBuilder::atBlockBegin(&entry);
      auto type = RankedTensorType::get({static_cast<int64_t>(loop.getTrip())},
                                        outside.getI32Type());
      Value numbers = Emitter(outside, loop.getLoc()).iota(type, 0);
      OpBuilder inside = OpBuilder::atBlockBegin(&loop.getBody().front());
      Value number = Emitter(inside, loop.getLoc())
                         .dynamicSlice(numbers, loop.getInduction());
      for (OpOperand *use : uses)
        use->set(number);
    });
  }
};

} // namespace
