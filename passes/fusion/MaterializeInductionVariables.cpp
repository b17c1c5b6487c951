#include "dialects/graph/Build.h"
#include "dialects/graph/GraphExchangeOps.h"
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

// Element i of a table of all numbers.
static void readFromTable(LoopOp loop, ArrayRef<OpOperand *> uses,
                          Block &entry) {
  OpBuilder outside = OpBuilder::atBlockBegin(&entry);
  auto type = RankedTensorType::get({static_cast<int64_t>(loop.getTrip())},
                                    outside.getI32Type());
  Value numbers = Emitter(outside, loop.getLoc()).iota(type, 0);
  OpBuilder inside = OpBuilder::atBlockBegin(&loop.getBody().front());
  Value number =
      Emitter(inside, loop.getLoc()).dynamicSlice(numbers, loop.getInduction());
  for (OpOperand *use : uses)
    use->set(number);
}

// A carried value that counts. Where the number of iterations is data, a GPU
// repeats one and the same body: no address may advance.
static void carryNumber(LoopOp loop, ArrayRef<OpOperand *> uses) {
  OpBuilder outside(loop);
  Emitter emitter(outside, loop.getLoc());
  SmallVector<Value> inits(loop.getInits());
  inits.push_back(
      emitter.zeros(cast<RankedTensorType>(loop.getInduction().getType())));
  auto made =
      outside.create<LoopOp>(loop.getLoc(), loop.getTrip(), inits,
                             [](OpBuilder &, Location, Value, ValueRange) {});
  made->setDiscardableAttrs(loop->getDiscardableAttrDictionary());
  made.setCounted(true);
  Block &body = made.getBody().front();
  Value number = body.getArguments().back();
  for (OpOperand *use : uses)
    use->set(number);
  SmallVector<Value> arguments(body.getArguments().drop_back());
  body.getOperations().splice(body.end(),
                              loop.getBody().front().getOperations());
  for (auto [from, to] :
       llvm::zip(loop.getBody().front().getArguments(), arguments))
    from.replaceAllUsesWith(to);
  YieldOp yield = made.getYield();
  OpBuilder inside(yield);
  yield->insertOperands(yield->getNumOperands(),
                        Emitter(inside, loop.getLoc()).add(number, 1.0));
  loop.replaceAllUsesWith(made.getResults().drop_back());
  loop.erase();
}

namespace {

class MaterializeInductionVariablesPass
    : public tessera::impl::MaterializeInductionVariablesBase<
          MaterializeInductionVariablesPass> {
  void runOnOperation() override {
    SmallVector<LoopOp> loops;
    getOperation()->walk([&](LoopOp loop) { loops.push_back(loop); });
    for (LoopOp loop : loops) {
      SmallVector<OpOperand *> uses = numberUses(loop);
      if (uses.empty())
        continue;
      if (loop.getCounted())
        carryNumber(loop, uses);
      else
        readFromTable(loop, uses, getOperation().getBody().front());
    }
  }
};

} // namespace
