// The pass for blocks that were not differentiated, and the loops of both.
#include "passes/autodiff/OverflowRounds.h"
#include "dialects/graph/Build.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "passes/autodiff/Autodiff.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

namespace tessera {
#define GEN_PASS_DEF_ADDOVERFLOWROUNDS
#include "passes/autodiff/Passes.h.inc"
} // namespace tessera

namespace {

using OpSet = llvm::DenseSet<Operation *>;

// Ops that give values of rows in the order in which all devices have them.
bool endsRows(Operation *op) {
  return isa<graph::ReturnRowsOp, graph::GroupedOuterOp>(op);
}

/// The ops of a block on rows of one exchange, which have one order of groups.
class Rounds {
public:
  Rounds(Block &block, Value groups) : block(block), groups(groups) {
    for (Operation &op : block)
      if (isSend(op) || (!isEnd(op) && readsRows(op)))
        rows.insert(&op);
  }

  /// The loop that gives `ends`, with what the first round gives.
  void add(ArrayRef<Operation *> ends, MutableArrayRef<Value> gradients,
           bool dispatchesAgain);

  SmallVector<Operation *> ends() {
    SmallVector<Operation *> found;
    for (Operation &op : block)
      if (isEnd(op))
        found.push_back(&op);
    return found;
  }

private:
  bool isSend(Operation &op) const {
    auto send = dyn_cast<graph::SendRowsOp>(op);
    return send && send.getBuffer() && send.getGroups() == groups;
  }
  bool readsRows(Operation &op) const {
    return llvm::any_of(op.getOperands(), [&](Value operand) {
      Operation *def = operand.getDefiningOp();
      return def && rows.contains(def);
    });
  }
  bool isEnd(Operation &op) const { return endsRows(&op) && readsRows(op); }
  OpSet sourcesOf(ArrayRef<Operation *> ends, bool dispatchesAgain) const;
  void moveReaders(graph::LoopOp loop, Operation *first);

  Block &block;
  Value groups;
  OpSet rows;
};

} // namespace

// What a round computes: the ops on rows that `ends` need, and the dispatch of
// rows to be sent again, which would otherwise have to be kept.
OpSet Rounds::sourcesOf(ArrayRef<Operation *> ends,
                        bool dispatchesAgain) const {
  OpSet sources;
  SmallVector<Operation *> work(ends);
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    if (!sources.insert(op).second)
      continue;
    bool sends = isa<graph::SendRowsOp>(op);
    for (Value operand : op->getOperands())
      if (Operation *def = operand.getDefiningOp())
        if (rows.contains(def) ||
            (sends && dispatchesAgain && isa<graph::DispatchRowsOp>(def)))
          work.push_back(def);
  }
  return sources;
}

// The loop follows the last of the ops whose results it takes; what reads its
// results follows the loop.
void Rounds::moveReaders(graph::LoopOp loop, Operation *first) {
  OpSet late{loop};
  SmallVector<Operation *> readers;
  for (Operation *op = first; op != loop; op = op->getNextNode())
    if (llvm::any_of(op->getOperands(), [&](Value operand) {
          Operation *def = operand.getDefiningOp();
          return def && late.contains(def);
        })) {
      late.insert(op);
      readers.push_back(op);
    }
  Operation *after = loop;
  for (Operation *op : readers) {
    op->moveAfter(after);
    after = op;
  }
}

void Rounds::add(ArrayRef<Operation *> ends, MutableArrayRef<Value> gradients,
                 bool dispatchesAgain) {
  if (ends.empty())
    return;
  OpSet sources = sourcesOf(ends, dispatchesAgain);
  SmallVector<Value> inits = llvm::map_to_vector(
      ends, [](Operation *end) { return Value(end->getResult(0)); });
  OpBuilder builder(block.getParentOp()->getContext());
  builder.setInsertionPointAfter(ends.back());
  auto loop = builder.create<graph::LoopOp>(
      ends.back()->getLoc(), /*trip=*/1, inits,
      [&](OpBuilder &inner, Location, Value, ValueRange carried) {
        IRMapping map;
        for (Operation &op : block)
          if (sources.contains(&op))
            inner.clone(op, map);
        SmallVector<Value> sums;
        for (auto [end, sum] : llvm::zip(ends, carried))
          sums.push_back(graph::Emitter(inner, end->getLoc())
                             .add(sum, map.lookup(end->getResult(0))));
        inner.create<graph::YieldOp>(ends.back()->getLoc(), sums);
      });
  loop.setOverflow(true);
  for (auto [init, result] : llvm::zip(inits, loop.getResults())) {
    init.replaceAllUsesExcept(result, loop);
    std::replace(gradients.begin(), gradients.end(), init, Value(result));
  }
  moveReaders(loop, ends.front());
}

// The orders of groups by which the block sends rows.
static llvm::SetVector<Value> sentGroups(Block &block) {
  llvm::SetVector<Value> groups;
  for (auto send : block.getOps<graph::SendRowsOp>())
    if (send.getBuffer())
      groups.insert(send.getGroups());
  return groups;
}

void tessera::autodiff::addForwardRounds(Block &block) {
  for (Value groups : sentGroups(block)) {
    Rounds rounds(block, groups);
    rounds.add(rounds.ends(), {}, /*dispatchesAgain=*/false);
  }
}

void tessera::autodiff::addGradientRounds(Block &block,
                                          ArrayRef<Operation *> forward,
                                          MutableArrayRef<Value> gradients) {
  OpSet known(forward.begin(), forward.end());
  for (Value groups : sentGroups(block)) {
    Rounds rounds(block, groups);
    SmallVector<Operation *> ends = rounds.ends();
    llvm::erase_if(ends, [&](Operation *end) { return known.contains(end); });
    rounds.add(ends, gradients, /*dispatchesAgain=*/true);
  }
}

namespace {

struct AddOverflowRounds
    : tessera::impl::AddOverflowRoundsBase<AddOverflowRounds> {
  void runOnOperation() override {
    getOperation().walk([](func::FuncOp function) {
      if (!function.isExternal())
        addForwardRounds(function.front());
    });
  }
};

} // namespace
