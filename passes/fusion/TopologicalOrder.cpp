#include "passes/fusion/TopologicalOrder.h"
#include "dialects/dist/DistOps.h"
#include <queue>

using namespace mlir;
using namespace tessera;

OpPositions tessera::positionsOf(Block &block) {
  OpPositions positions;
  for (Operation &op : block)
    positions[&op] = positions.size();
  return positions;
}

bool tessera::isCollective(Operation *op) {
  return isa<dist::CollectiveOpInterface, dist::WaitOp>(op);
}

bool tessera::hasCollective(Operation *op) {
  return op
      ->walk([](Operation *inner) {
        return isCollective(inner) ? WalkResult::interrupt()
                                   : WalkResult::advance();
      })
      .wasInterrupted();
}

llvm::SmallSetVector<Operation *, 8> tessera::producersOf(Operation *op) {
  llvm::SmallSetVector<Operation *, 8> producers;
  op->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (Operation *producer = operand.getDefiningOp();
          producer && producer->getBlock() == op->getBlock() && producer != op)
        producers.insert(producer);
  });
  return producers;
}

void tessera::orderByPosition(Block &block, const OpPositions &positions) {
  DenseMap<Operation *, SmallVector<Operation *, 2>> readers;
  DenseMap<Operation *, unsigned> waitsFor;
  using Ready = std::pair<unsigned, Operation *>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  Operation *lastCollective = nullptr;
  for (Operation &op : block.without_terminator()) {
    auto producers = producersOf(&op);
    if (hasCollective(&op)) {
      if (lastCollective)
        producers.insert(lastCollective);
      lastCollective = &op;
    }
    waitsFor[&op] = producers.size();
    for (Operation *producer : producers)
      readers[producer].push_back(&op);
    if (producers.empty())
      ready.push({positions.lookup(&op), &op});
  }
  while (!ready.empty()) {
    Operation *op = ready.top().second;
    ready.pop();
    op->moveBefore(block.getTerminator());
    for (Operation *reader : readers.lookup(op))
      if (--waitsFor[reader] == 0)
        ready.push({positions.lookup(reader), reader});
  }
}
