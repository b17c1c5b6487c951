// The pass: the forward and the backward of a pair by turns, so that the
// collectives of one overlap with the computation of the other (passes/overlap
// keeps the order of both).
#include "dialects/dist/DistOps.h"
#include "dialects/dist/PairAttr.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/fusion/Fusion.h"
#include "passes/fusion/TopologicalOrder.h"
#include "llvm/ADT/MapVector.h"
#include <array>

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_INTERLEAVEPAIRS
#include "passes/fusion/Passes.h.inc"
} // namespace tessera

namespace {

/// The ops of a pass, in segments that end with a collective or a loop that
/// contains some. A loop over further rounds of an exchange ends none: it
/// belongs to the exchange before it, and rarely has anything to do.
struct Half {
  SmallVector<Operation *> ops;
  SmallVector<size_t> collectives; ///< positions, of those loops too
  SmallVector<size_t> ends;        ///< positions
  size_t next = 0;                 ///< all ops before it are ordered
  size_t started = 0;              ///< of the ends

  /// The position after the ops that precede the next collective.
  size_t segmentEnd() const {
    return started < ends.size() ? ends[started] : ops.size();
  }
};

/// The order of one pair. Which collective follows which depends on nothing but
/// their numbers in both halves, so all ranks of a group have one order even if
/// their programs differ in other ops.
class PairOrder {
public:
  PairOrder(ArrayRef<Operation *> forward, ArrayRef<Operation *> backward) {
    fill(halves[0], forward);
    fill(halves[1], backward);
  }

  SmallVector<Operation *> run() {
    SmallVector<unsigned> turns = this->turns();
    for (size_t i = 0; i < turns.size(); ++i) {
      Half &own = halves[turns[i]], &other = halves[1 - turns[i]];
      // The ops before the collective, then it starts.
      append(own, own.segmentEnd() + 1);
      ++own.started;
      // What the other half computes meanwhile: until its own next collective,
      // in equal parts if several of this half come before that.
      size_t until = i + 1;
      while (until < turns.size() && turns[until] == turns[i])
        ++until;
      size_t left = other.segmentEnd() - other.next;
      append(other, other.next + llvm::divideCeil(left, until - i));
    }
    for (Half &half : halves)
      append(half, half.ops.size());
    return std::move(order);
  }

private:
  void fill(Half &half, ArrayRef<Operation *> ops) {
    for (Operation *op : ops) {
      positions[op] = {&half, half.ops.size()};
      if (hasCollective(op)) {
        half.collectives.push_back(half.ops.size());
        if (!graph::isCountedLoop(op))
          half.ends.push_back(half.ops.size());
      }
      half.ops.push_back(op);
    }
  }

  // Whose end of a segment is next, one after the other: spread evenly.
  SmallVector<unsigned> turns() const {
    size_t forwards = halves[0].ends.size(), backwards = halves[1].ends.size(),
           i = 0, j = 0;
    SmallVector<unsigned> turns;
    while (i + j < forwards + backwards) {
      bool isForward = j == backwards ||
                       (i < forwards &&
                        (i + 1) * (backwards + 1) <= (j + 1) * (forwards + 1));
      turns.push_back(isForward ? 0 : 1);
      ++(isForward ? i : j);
    }
    return turns;
  }

  void append(Half &half, size_t end) {
    for (; half.next < end; ++half.next)
      emit(half.ops[half.next]);
  }

  // After its operands; a collective also after those before it in its half.
  void emit(Operation *op) {
    auto place = positions.find(op);
    if (place == positions.end() || !emitted.insert(op).second)
      return;
    for (Operation *producer : producersOf(op))
      emit(producer);
    auto [half, position] = place->second;
    auto here = llvm::lower_bound(half->collectives, position);
    if (here != half->collectives.end() && *here == position &&
        here != half->collectives.begin())
      emit(half->ops[*std::prev(here)]);
    order.push_back(op);
  }

  std::array<Half, 2> halves;
  DenseMap<Operation *, std::pair<Half *, size_t>> positions;
  DenseSet<Operation *> emitted;
  SmallVector<Operation *> order;
};

/// The ops of a block that a pair's marks enclose. What canonicalization made
/// between marked ops has no mark.
struct Marks {
  Operation *firstForward = nullptr, *firstBackward = nullptr,
            *lastBackward = nullptr;
};

class InterleavePairsPass
    : public tessera::impl::InterleavePairsBase<InterleavePairsPass> {
  void runOnOperation() override {
    SmallVector<Block *> blocks{&getOperation().getBody().front()};
    getOperation()->walk(
        [&](graph::LoopOp loop) { blocks.push_back(&loop.getBody().front()); });
    for (Block *block : blocks)
      if (failed(interleave(*block)))
        return signalPassFailure();
    getOperation()->walk(
        [](Operation *op) { op->removeAttr(dist::kPairAttr); });
  }

  static LogicalResult interleave(Block &block) {
    llvm::MapVector<int64_t, Marks> pairs;
    for (Operation &op : block) {
      auto mark = op.getAttrOfType<DenseI64ArrayAttr>(dist::kPairAttr);
      // Canonicalization moves constants to the beginning.
      if (!mark || isa<graph::ConstantOp>(op))
        continue;
      Marks &marks = pairs[mark[0]];
      Operation *&first = mark[1] ? marks.firstBackward : marks.firstForward;
      first = first ? first : &op;
      if (mark[1])
        marks.lastBackward = &op;
      else if (marks.firstBackward)
        return op.emitError("is of the forward of pair ")
               << mark[0] << ", but follows ops of its backward";
    }
    for (auto &[number, marks] : pairs)
      if (marks.firstForward && marks.firstBackward)
        reorder(marks);
    return success();
  }

  static void reorder(const Marks &marks) {
    SmallVector<Operation *> forward, backward;
    Operation *op = marks.firstForward,
              *end = marks.lastBackward->getNextNode();
    for (; op != marks.firstBackward; op = op->getNextNode())
      forward.push_back(op);
    for (; op != end; op = op->getNextNode())
      backward.push_back(op);
    for (Operation *next : PairOrder(forward, backward).run())
      next->moveBefore(end);
  }
};

} // namespace
