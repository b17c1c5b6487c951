#include "passes/folding/LayerOrder.h"
#include "passes/fusion/TopologicalOrder.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::folding;

void LayerOrder::findPositions(Block &block) {
  positions.clear();
  own.clear();
  for (Operation &op : block) {
    positions[&op] = static_cast<int64_t>(own.size());
    own.push_back(&op);
  }
  before.assign(own.size() + 1, {});
}

std::vector<LayerOrder::Segment> LayerOrder::segmentsOf(Block &block) const {
  std::vector<unsigned> numbers;
  for (auto [number, op] : llvm::enumerate(units.ops[2]))
    if (op->getBlock() == &block)
      numbers.push_back(number);
  auto first = [&](unsigned number) {
    return std::min(position(1, number), position(2, number));
  };
  llvm::sort(numbers,
             [&](unsigned a, unsigned b) { return first(a) < first(b); });
  std::vector<Segment> segments;
  int64_t end = 0; // of the last segment
  for (unsigned number : numbers) {
    bool ascends = position(1, number) < position(2, number);
    if (segments.empty() || segments.back().ascends != ascends ||
        first(number) > end) {
      segments.push_back({{}, ascends});
      end = 0;
    }
    segments.back().numbers.push_back(number);
    end = std::max({end, position(1, number), position(2, number)});
  }
  return segments;
}

// Before the boundary (after it, where earlier layers come later) are all ops
// of the second unit, and maybe some of the third. This window is repeated for
// each copy: those of the third, and of the second those that the third has on
// the other side. There, the last copy replaces the third.
void LayerOrder::place(const Segment &segment) {
  bool ascends = segment.ascends;
  int64_t boundary = position(1, segment.numbers.front());
  for (unsigned number : segment.numbers) {
    int64_t at = position(1, number);
    boundary = ascends ? std::max(boundary, at + 1) : std::min(boundary, at);
  }
  auto count = static_cast<int64_t>(copies.size()), last = count + 2;
  std::vector<std::pair<int64_t, unsigned>> window; ///< unit, number
  for (unsigned number : segment.numbers) {
    int64_t at = position(2, number);
    bool isMixed = ascends ? at < boundary : at >= boundary;
    window.emplace_back(isMixed ? 2 : 1, number);
    if (!isMixed)
      own[at] = opOf(last, number);
  }
  llvm::sort(window, [&](auto &a, auto &b) {
    return position(a.first, a.second) < position(b.first, b.second);
  });
  for (int64_t i = 0; i < count; ++i)
    for (auto [unit, number] : window)
      before[boundary].push_back(
          opOf(ascends ? unit + 1 + i : unit + count - i, number));
}

// An op of the block that, or whose regions, reads what comes after it.
static Operation *findUnready(Block &block) {
  llvm::DenseSet<Operation *> seen;
  for (Operation &op : block) {
    for (OpOperand *read : readsOf(&op)) {
      Operation *def = read->get().getDefiningOp();
      if (def && def->getBlock() == &block && !seen.contains(def))
        return &op;
    }
    seen.insert(&op);
  }
  return nullptr;
}

Operation *LayerOrder::moveAfterProducers(Block &block) {
  if (!findUnready(block))
    return nullptr;
  orderByPosition(block, positionsOf(block));
  return findUnready(block);
}

void LayerOrder::apply(Block &block) {
  findPositions(block);
  std::vector<Segment> segments = segmentsOf(block);
  if (segments.empty())
    return;
  for (const Segment &segment : segments)
    place(segment);
  std::vector<Operation *> order;
  for (size_t i = 0; i < own.size(); ++i) {
    llvm::append_range(order, before[i]);
    order.push_back(own[i]);
  }
  for (Operation &op : llvm::make_early_inc_range(block))
    op.remove();
  for (Operation *op : order)
    block.push_back(op);
}
