// A list scheduler: one engine computes, one for each set of axes moves data.
// Computing ops keep their order except to avoid a wait, or to start a
// collective earlier that is needed soon.
#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/overlap/BlockGraph.h"
#include "passes/overlap/Costs.h"
#include "passes/overlap/Overlap.h"
#include "passes/overlap/Sequence.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::overlap;

namespace tessera {
#define GEN_PASS_DEF_OVERLAPCOLLECTIVES
#include "passes/overlap/Passes.h.inc"
} // namespace tessera

// The window of computing ops from which the next one is chosen. A larger one
// would overlap little more and keep more tensors alive.
static constexpr size_t kWindow = 12;

namespace {

class ListScheduler : Emitter {
public:
  ListScheduler(const BlockGraph &graph, ArrayRef<unsigned> sequence)
      : Emitter(graph, sequence), costs(graph.block.getParentOp()),
        work(computing(graph)), positions(graph.positions()),
        uses(graph.firstUses()), prefetch(graph.prefetchStarts()),
        finish(graph.ops.size(), -1.0), isWaited(graph.ops.size(), false) {
    for (unsigned op : graph.items)
      if (graph.isCollective(op)) {
        durations[op] = costs.ofCollective(
            cast<dist::CollectiveOpInterface>(graph.ops[op]));
      }
  }

  /// False if the sequence contradicts the block.
  bool run() {
    while (true) {
      while (first < work.size() && isEmitted(work[first]))
        ++first;
      if (!startWhatIsReady())
        return false;
      if (first == work.size())
        break;
      if (!emit(choose().op))
        return false;
    }
    for (unsigned op = 0; op < graph.ops.size(); ++op)
      if (!emit(op))
        return false;
    for (unsigned op : sequence)
      if (graph.isCollective(op))
        needs(op);
    return true;
  }

  struct Entry {
    unsigned op;
    bool isWait; ///< for a collective, or the op itself
  };
  SmallVector<Entry> order;

private:
  void appended(unsigned op) override {
    if (numberInSequence[op] >= 0)
      next = numberInSequence[op] + 1;
    if (graph.isCollective(op))
      makeRoom(op);
    order.push_back({op, false});
    if (!graph.isCollective(op)) {
      clock += costs.ofComputing(graph.ops[op]);
      return;
    }
    auto collective = cast<dist::CollectiveOpInterface>(graph.ops[op]);
    double &link = linkFree[collective.getAxes()];
    link = std::max(link, clock) + durations.lookup(op);
    finish[op] = link;
  }

  void needs(unsigned collective) override {
    if (isWaited[collective])
      return;
    isWaited[collective] = true;
    clock = std::max(clock, finish[collective]);
    order.push_back({collective, true});
  }

  // A pending collective keeps its operand and result alive. Links carry one
  // after another, so two pending ones over the same axes are enough.
  // all_reduce is in place and keeps nothing.
  void makeRoom(unsigned op) {
    auto collective = cast<dist::CollectiveOpInterface>(graph.ops[op]);
    if (collective.isInPlace())
      return;
    SmallVector<unsigned> &before = underway[collective.getAxes()];
    if (before.size() >= 2)
      needs(before[before.size() - 2]);
    before.push_back(op);
  }

  // Whether a chunk of a collective matmul would have to wait for another one
  // to arrive: computation goes first then. Not over `pipe`: other stages need
  // their tensors as soon as possible.
  bool needsTime(unsigned op) const {
    auto permute = dyn_cast<dist::PermuteOp>(graph.ops[op]);
    if (!permute ||
        llvm::any_of(permute.getAxes().getAsRange<dist::AxisRefAttr>(),
                     [](dist::AxisRefAttr axis) {
                       return axis.getName() == dist::kPipeAxis;
                     }))
      return false;
    auto before = underway.find(permute.getAxes());
    return before != underway.end() && before->second.size() >= 2 &&
           !isThere(before->second[before->second.size() - 2]);
  }

  bool isThere(unsigned collective) const {
    return isWaited[collective] ||
           (isEmitted(collective) && finish[collective] <= clock);
  }

  // Whether the collective could start now if all before it had started.
  bool isReady(unsigned op) const {
    return llvm::all_of(graph.sources[op], [&](unsigned source) {
      return graph.isCollective(source) ? isThere(source) : isEmitted(source);
    });
  }

  bool isPrefetch(unsigned op) const { return graph.isPrefetch(op, positions); }

  // Starts the next collectives of the sequence as long as they are ready. A
  // prefetch waits for its time, unless a ready collective follows it.
  bool startWhatIsReady() {
    unsigned now = first < work.size() ? work[first] : graph.ops.size();
    while (next < sequence.size()) {
      size_t end = next;
      while (end < sequence.size() && graph.isCollective(sequence[end]) &&
             isPrefetch(sequence[end]) && prefetch[sequence[end]] > now)
        ++end;
      if (end == sequence.size() || !graph.isCollective(sequence[end]) ||
          !isReady(sequence[end]) ||
          (now < graph.ops.size() && needsTime(sequence[end]) && choose().runs))
        return true;
      if (!emit(sequence[end]))
        return false;
    }
    return true;
  }

  // The ops that must run before the next collective that is needed soon can
  // start, if they are few.
  SmallVector<unsigned> urgent(size_t end) const {
    size_t item = next;
    while (item < sequence.size() && graph.isCollective(sequence[item]) &&
           isPrefetch(sequence[item]))
      ++item;
    if (item == sequence.size() || !graph.isCollective(sequence[item]))
      return {};
    size_t soon = std::min(end + kWindow, work.size());
    if (soon < work.size() && uses[sequence[item]] >= work[soon])
      return {};
    SmallVector<unsigned> found, open{sequence[item]};
    while (!open.empty())
      for (unsigned source : graph.sources[open.pop_back_val()]) {
        if (isEmitted(source) || llvm::is_contained(found, source))
          continue;
        if (graph.isCollective(source) || found.size() == kWindow ||
            (end < work.size() && source >= work[end]))
          return {};
        found.push_back(source);
        open.push_back(source);
      }
    return found;
  }

  struct Choice {
    unsigned op;
    bool runs; ///< without having to wait
  };
  Choice choose() const {
    size_t end = first;
    SmallVector<unsigned> window;
    for (; end < work.size() && window.size() < kWindow; ++end)
      if (!isEmitted(work[end]))
        window.push_back(work[end]);
    SmallVector<unsigned> before = urgent(end);
    std::optional<unsigned> runs, waits;
    double soonest = 0;
    for (unsigned op : window) {
      bool isBlocked = false, mustWait = false;
      double there = clock;
      for (unsigned source : graph.sources[op]) {
        isBlocked |= !isEmitted(source);
        if (graph.isCollective(source) && !isThere(source)) {
          mustWait = true;
          there = std::max(there, finish[source]);
        }
      }
      if (isBlocked)
        continue;
      if (!mustWait && llvm::is_contained(before, op))
        return {op, true};
      if (!mustWait && !runs)
        runs = op;
      if (mustWait && (!waits || there < soonest)) {
        waits = op;
        soonest = there;
      }
    }
    return {runs ? *runs : waits.value_or(window.front()), runs.has_value()};
  }

  const Costs costs;
  SmallVector<unsigned> work; ///< computing ops, in program order
  SmallVector<int64_t> positions;
  SmallVector<unsigned> uses, prefetch;
  SmallVector<double> finish;
  SmallVector<bool> isWaited;
  DenseMap<unsigned, double> durations;
  DenseMap<Attribute, double> linkFree;
  DenseMap<Attribute, SmallVector<unsigned>> underway; ///< all that started
  double clock = 0;
  size_t first = 0; ///< of work: all before it has run
  size_t next = 0;  ///< of the sequence: all before it have started
};

} // namespace

// A collective stays blocking if nothing runs between it and its wait.
static bool hidesNothing(const BlockGraph &graph,
                         ArrayRef<ListScheduler::Entry> order, size_t start) {
  for (ListScheduler::Entry entry : order.drop_front(start + 1)) {
    if (entry.isWait)
      return entry.op == order[start].op;
    if (graph.kinds[entry.op] != BlockGraph::Kind::light)
      return false;
  }
  return true;
}

static void write(const BlockGraph &graph,
                  ArrayRef<ListScheduler::Entry> order) {
  Operation *end = graph.block.getTerminator();
  OpBuilder builder(end);
  llvm::DenseMap<unsigned, dist::WaitOp> waits;
  for (auto [i, entry] : llvm::enumerate(order)) {
    Operation *op = graph.ops[entry.op];
    if (entry.isWait) {
      if (auto wait = waits.lookup(entry.op))
        wait->moveBefore(end);
      continue;
    }
    op->moveBefore(end);
    op->removeAttr(dist::kStartAttr);
    if (!graph.isCollective(entry.op) || hidesNothing(graph, order, i))
      continue;
    Value result = op->getResult(0);
    auto type = cast<RankedTensorType>(result.getType());
    auto wait = builder.create<dist::WaitOp>(op->getLoc(), type, result);
    result.replaceAllUsesExcept(wait.getResult(), wait);
    result.setType(dist::PendingType::get(op->getContext(), type));
    waits[entry.op] = wait;
  }
}

static LogicalResult overlapBlock(Block &block) {
  BlockGraph graph(block);
  FailureOr<SmallVector<unsigned>> sequence = sequenceOf(graph);
  if (failed(sequence))
    return failure();
  ListScheduler scheduler(graph, *sequence);
  if (!scheduler.run())
    return contradiction(graph, *sequence);
  write(graph, scheduler.order);
  return success();
}

namespace {
class OverlapCollectivesPass
    : public tessera::impl::OverlapCollectivesBase<OverlapCollectivesPass> {
  void runOnOperation() override {
    // Inner loops first: hasCollective sees them however they are scheduled.
    WalkResult walk = getOperation()->walk([](Operation *op) {
      return hasStarts(op) ? WalkResult(overlapBlock(op->getRegion(0).front()))
                           : WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return signalPassFailure();
  }
};
} // namespace
