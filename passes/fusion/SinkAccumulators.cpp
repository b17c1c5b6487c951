#include "dialects/graph/Build.h"
#include "dialects/graph/Constants.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Dominance.h"
#include "passes/fusion/Fusion.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace tessera {
#define GEN_PASS_DEF_SINKACCUMULATORS
#include "passes/fusion/Passes.h.inc"
} // namespace tessera

// Whether each iteration of the loop only adds to carried value `i`.
static bool onlyAdds(LoopOp loop, unsigned i) {
  Value carried = loop.getCarried()[i];
  Value next = loop.getYield().getValues()[i];
  if (!carried.hasOneUse())
    return false;
  Operation *user = *carried.getUsers().begin();
  if (next.getDefiningOp() != user || !next.hasOneUse())
    return false; // it may be passed on as it is
  if (isa<AddOp>(user))
    return user->getOperand(0) != user->getOperand(1);
  auto scatter = dyn_cast<ScatterAddOp>(user);
  return scatter && scatter.getBase() == carried;
}

// base + (a + b + …) → (base + a) + b + …, for rounds b of an exchange after
// the first, a. Otherwise every microbatch would keep its own sum.
static bool sinkBeforeRounds(LoopOp loop, unsigned i, Value base,
                             DominanceInfo &dominance) {
  Value first = loop.getInits()[i];
  Operation *op = first.getDefiningOp();
  if (!loop.getCounted() || !op || !first.hasOneUse() ||
      op->getBlock() != loop->getBlock() ||
      !dominance.properlyDominates(base, op))
    return false;
  OpBuilder builder(op->getContext());
  builder.setInsertionPointAfter(op);
  loop.getInitsMutable()[i].set(
      Emitter(builder, op->getLoc()).add(base, first));
  return true;
}

// base + (a + b) → (base + a) + b for contractions, which add in place. The
// pieces of a gradient that a collective matmul computes would otherwise be
// kept until the sum of all microbatches is added in one kernel.
static bool sinkBeforePieces(AddOp pieces, Value base) {
  auto isContraction = [](Value piece) {
    return piece.getDefiningOp<EinsumOp>() && piece.hasOneUse();
  };
  if (!isContraction(pieces.getLhs()) || !isContraction(pieces.getRhs()) ||
      pieces.getLhs() == base || pieces.getRhs() == base)
    return false;
  OpBuilder builder(pieces);
  Emitter emitter(builder, pieces.getLoc());
  pieces.getLhsMutable().assign(emitter.add(base, pieces.getLhs()));
  return true;
}

// base + (0 + a + b + …) → base + a + b + …, for a loop or a scatter that
// starts from zeros, and for pieces of a contraction.
static bool sink(AddOp add, DominanceInfo &dominance) {
  for (auto [sum, base] : {std::pair(add.getLhs(), add.getRhs()),
                           std::pair(add.getRhs(), add.getLhs())}) {
    Operation *op = sum.getDefiningOp();
    if (!op || !sum.hasOneUse() || op->getBlock() != add->getBlock() ||
        !dominance.properlyDominates(base, op))
      continue;
    if (auto loop = dyn_cast<LoopOp>(op)) {
      unsigned i = cast<OpResult>(sum).getResultNumber();
      if (!onlyAdds(loop, i))
        continue;
      if (isZero(loop.getInits()[i]))
        loop.getInitsMutable()[i].set(base);
      else if (!sinkBeforeRounds(loop, i, base, dominance))
        continue;
    } else if (auto scatter = dyn_cast<ScatterAddOp>(op)) {
      if (!isZero(scatter.getBase()))
        continue;
      scatter.getBaseMutable().assign(base);
    } else if (auto pieces = dyn_cast<AddOp>(op)) {
      if (!sinkBeforePieces(pieces, base))
        continue;
    } else {
      continue;
    }
    add.getResult().replaceAllUsesWith(sum);
    add.erase();
    return true;
  }
  return false;
}

namespace {

class SinkAccumulatorsPass
    : public tessera::impl::SinkAccumulatorsBase<SinkAccumulatorsPass> {
  void runOnOperation() override {
    // An inner loop absorbs an outer sum before the outer one is visited.
    for (bool changed = true; changed;) {
      changed = false;
      DominanceInfo dominance(getOperation());
      SmallVector<AddOp> adds;
      getOperation()->walk([&](AddOp add) { adds.push_back(add); });
      for (AddOp add : adds)
        changed |= sink(add, dominance);
    }
  }
};

} // namespace
