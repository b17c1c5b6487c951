#include "passes/overlap/BlockGraph.h"
#include "dialects/dist/DistOps.h"
#include "dialects/graph/LoopAttrs.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/fusion/TopologicalOrder.h"
#include "passes/overlap/Costs.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::overlap;

bool tessera::overlap::isStart(Operation *op) {
  return tessera::isCollective(op) && !isa<dist::WaitOp>(op);
}

bool tessera::overlap::hasStarts(Operation *op) {
  return isa<func::FuncOp, graph::LoopOp>(op) && !op->getRegion(0).empty() &&
         llvm::any_of(op->getRegion(0).front(),
                      [](Operation &inner) { return isStart(&inner); });
}

//===--- edges ------------------------------------------------------------===//

BlockGraph::BlockGraph(Block &block) : block(block) {
  for (Operation &op : block.without_terminator())
    ops.push_back(&op);
  connect();
  classify();
  sources.resize(ops.size());
  for (unsigned op = 0; op < ops.size(); ++op) {
    llvm::SmallSetVector<unsigned, 8> found;
    for (unsigned pred : preds[op])
      if (kinds[pred] == Kind::compute || isCollective(pred))
        found.insert(pred);
      else
        found.insert(sources[pred].begin(), sources[pred].end());
    sources[op].assign(found.begin(), found.end());
    if (isCollective(op) || hasCollective(ops[op]))
      items.push_back(op);
  }
}

void BlockGraph::connect() {
  DenseMap<Operation *, unsigned> numbers;
  for (auto [i, op] : llvm::enumerate(ops))
    numbers[op] = i;
  preds.resize(ops.size());
  succs.resize(ops.size());
  for (auto [i, op] : llvm::enumerate(ops)) {
    llvm::SmallSetVector<unsigned, 8> found;
    op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (auto it = numbers.find(operand.getDefiningOp());
            it != numbers.end() && it->second != i)
          found.insert(it->second);
    });
    connectCarried(op, numbers, found);
    preds[i].assign(found.begin(), found.end());
    for (unsigned pred : found)
      succs[pred].push_back(i);
  }
}

// The value that leaves the loop in the trip in which `carried` is received:
// values in flight move from one carried value to the one before it.
static BlockArgument lastOfFlight(graph::LoopOp loop, BlockArgument carried) {
  for (int64_t trip = 1; trip < graph::tripsInFlight(loop); ++trip) {
    auto yielded = loop.getYield().getValues();
    auto next = llvm::find(yielded, Value(carried));
    // With fewer in flight what is received has a free place.
    if (next == yielded.end())
      return {};
    carried = loop.getCarried()[next - yielded.begin()];
  }
  return carried;
}

// What a loop's body receives for a later iteration is received in the memory
// of the carried value that it replaces, once that value has been read.
void BlockGraph::connectCarried(Operation *op,
                                const DenseMap<Operation *, unsigned> &numbers,
                                llvm::SmallSetVector<unsigned, 8> &found) {
  auto loop = dyn_cast<graph::LoopOp>(block.getParentOp());
  if (!loop || !isStart(op))
    return;
  for (auto [value, carried] :
       llvm::zip(loop.getYield().getValues(), loop.getCarried())) {
    if (value.getDefiningOp() != op)
      continue;
    BlockArgument replaced = lastOfFlight(loop, carried);
    if (!replaced)
      continue;
    for (Operation *user : replaced.getUsers()) {
      auto reader = numbers.find(block.findAncestorOpInBlock(*user));
      if (reader != numbers.end() && reader->second < numbers.lookup(op))
        found.insert(reader->second);
    }
  }
}

static bool isLight(Operation *op) {
  return isa<graph::ReshapeOp, graph::SliceOp, graph::DynamicSliceOp,
             graph::ConstantOp, graph::ConcatOp, dist::PackOp, dist::UnpackOp>(
      op);
}

// Clusters that only move or convert elements.
static bool onlyMoves(Operation *op) {
  auto cluster = dyn_cast<graph::ClusterOp>(op);
  return cluster &&
         llvm::all_of(cluster.getBody().front(), [](Operation &inner) {
           return isa<graph::ReshapeOp, graph::TransposeOp, graph::SliceOp,
                      graph::ConcatOp, graph::PadOp, graph::ConvertOp,
                      graph::ConstantOp, graph::YieldOp>(inner);
         });
}

namespace {
/// Whether ops lead to collectives, or from them, by nothing but moves. Merged
/// collectives are at the end of their block, after their readers, until it is
/// reordered, so this follows edges and not the order of the block.
class Moves {
public:
  explicit Moves(const BlockGraph &graph)
      : graph(graph), came(graph.ops.size()), travels(graph.ops.size()) {}

  /// Whether the op is a collective or reads only results of collectives.
  bool onlyCame(unsigned op) {
    return remember(came[op], [&] {
      return isStart(graph.ops[op]) ||
             (moves(op) && !graph.preds[op].empty() &&
              llvm::all_of(graph.preds[op],
                           [&](unsigned pred) { return onlyCame(pred); }));
    });
  }

  /// Whether only collectives read its results.
  bool onlyTravels(unsigned op) {
    return remember(travels[op], [&] {
      Operation *end = graph.block.getTerminator();
      return !graph.succs[op].empty() &&
             llvm::all_of(graph.succs[op],
                          [&](unsigned user) {
                            return isStart(graph.ops[user]) ||
                                   (moves(user) && onlyTravels(user));
                          }) &&
             !llvm::is_contained(graph.ops[op]->getUsers(), end);
    });
  }

private:
  bool moves(unsigned op) const {
    return isLight(graph.ops[op]) || onlyMoves(graph.ops[op]);
  }
  static bool remember(std::optional<bool> &known,
                       llvm::function_ref<bool()> find) {
    if (!known)
      known = find();
    return *known;
  }

  const BlockGraph &graph;
  SmallVector<std::optional<bool>> came, travels;
};
} // namespace

void BlockGraph::classify() {
  kinds.resize(ops.size());
  Moves moves(*this);
  for (unsigned op = 0; op < ops.size(); ++op) {
    auto cluster = dyn_cast<graph::ClusterOp>(ops[op]);
    bool isSmall =
        cluster && llvm::is_contained({graph::ClusterKind::elementwise,
                                       graph::ClusterKind::gather},
                                      cluster.getKind());
    if (isStart(ops[op]))
      kinds[op] = Kind::collective;
    else if (isLight(ops[op]))
      kinds[op] = Kind::light;
    else if ((isSmall && moves.onlyTravels(op)) ||
             (onlyMoves(ops[op]) && moves.onlyCame(op)))
      kinds[op] = Kind::feeder;
    else
      kinds[op] = Kind::compute;
  }
}

//===--- derived properties -----------------------------------------------===//

SmallVector<llvm::BitVector> BlockGraph::itemsBefore() const {
  DenseMap<unsigned, unsigned> numbers;
  for (auto [i, op] : llvm::enumerate(items))
    numbers[op] = i;
  SmallVector<llvm::BitVector> before(ops.size(),
                                      llvm::BitVector(items.size()));
  for (unsigned op = 0; op < ops.size(); ++op)
    for (unsigned pred : preds[op]) {
      before[op] |= before[pred];
      if (auto it = numbers.find(pred); it != numbers.end())
        before[op].set(it->second);
    }
  return before;
}

SmallVector<int64_t> BlockGraph::positions() const {
  SmallVector<int64_t> positions(ops.size(), -1);
  for (unsigned op = 0; op < ops.size(); ++op) {
    for (unsigned pred : preds[op])
      positions[op] = std::max(positions[op], positions[pred]);
    if (kinds[op] == Kind::compute)
      positions[op] = op;
  }
  return positions;
}

SmallVector<unsigned> BlockGraph::firstUses() const {
  SmallVector<unsigned> first(ops.size(), ops.size());
  for (unsigned op = ops.size(); op-- > 0;)
    for (unsigned user : succs[op])
      first[op] = std::min(first[op],
                           kinds[user] == Kind::compute ? user : first[user]);
  return first;
}

bool BlockGraph::isPrefetch(unsigned op, ArrayRef<int64_t> positions) const {
  return isa<dist::AllGatherOp>(ops[op]) && positions[op] < 0 &&
         llvm::none_of(
             sources[op],
             [&](unsigned source) { return isCollective(source); });
}

// The tensors of a gather: its result, or those of a pack.
static SmallVector<Value> tensorsOf(Operation *gather) {
  Value result = gather->getResult(0);
  if (result.hasOneUse())
    if (auto unpack = dyn_cast<dist::UnpackOp>(*result.user_begin()))
      return SmallVector<Value>(unpack.getOutputs());
  return {result};
}

int64_t BlockGraph::prefetchRoom() const {
  SmallVector<int64_t> positions = this->positions();
  SmallVector<int64_t> change(ops.size() + 1, 0);
  DenseMap<Operation *, unsigned> numbers;
  SmallVector<unsigned> first = firstUses(), last(ops.size());
  // A view counts as read where its own readers are.
  auto lastOf = [&](unsigned user) {
    return kinds[user] == Kind::compute ? user : std::max(user, last[user]);
  };
  for (unsigned op = ops.size(); op-- > 0;) {
    numbers[ops[op]] = op;
    for (unsigned user : succs[op])
      last[op] = std::max(last[op], lastOf(user));
  }
  for (unsigned op : items) {
    if (!isPrefetch(op, positions))
      continue;
    for (Value tensor : tensorsOf(ops[op])) {
      unsigned from = ops.size(), to = 0;
      for (Operation *reader : tensor.getUsers())
        if (auto it = numbers.find(block.findAncestorOpInBlock(*reader));
            it != numbers.end()) {
          unsigned user = it->second;
          from =
              std::min(from, kinds[user] == Kind::compute ? user : first[user]);
          to = std::max(to, lastOf(user));
        }
      if (from == ops.size())
        continue;
      change[from] += bytesOf(tensor);
      change[to + 1] -= bytesOf(tensor);
    }
  }
  int64_t now = 0, most = 0;
  for (int64_t step : change)
    most = std::max(most, now += step);
  return most;
}

SmallVector<unsigned> BlockGraph::prefetchStarts() const {
  SmallVector<int64_t> positions = this->positions();
  SmallVector<unsigned> uses = firstUses(), starts(ops.size(), 0);
  SmallVector<double> time(ops.size() + 1, 0.0); // when an op begins
  const Costs costs(block.getParentOp());
  for (unsigned op = 0; op < ops.size(); ++op)
    time[op + 1] = time[op] + costs.ofComputing(ops[op]);
  SmallVector<unsigned> gathers;
  for (unsigned op : items)
    if (isPrefetch(op, positions))
      gathers.push_back(op);
  llvm::sort(gathers, [&](unsigned a, unsigned b) {
    return std::pair(uses[a], a) < std::pair(uses[b], b);
  });
  // Latest starts, from the last one on: links carry one at a time.
  DenseMap<Attribute, double> busyFrom;
  for (unsigned op : llvm::reverse(gathers)) {
    auto collective = cast<dist::CollectiveOpInterface>(ops[op]);
    auto [link, isNew] =
        busyFrom.try_emplace(collective.getAxes(), time[ops.size()]);
    double done = std::min(link->second, time[uses[op]]);
    double start = done - 2 * costs.ofCollective(collective);
    link->second = start;
    starts[op] = llvm::upper_bound(time, start) - time.begin();
    starts[op] = std::min(starts[op] ? starts[op] - 1 : 0, uses[op]);
  }
  // And not before there is room.
  int64_t limit = prefetchRoom(), held = 0;
  size_t oldest = 0;
  for (auto [i, op] : llvm::enumerate(gathers)) {
    held += bytesOf(ops[op]);
    for (; held > limit && oldest < i; ++oldest) {
      held -= bytesOf(ops[gathers[oldest]]);
      starts[op] =
          std::max(starts[op], std::min(uses[gathers[oldest]], uses[op]));
    }
    if (i > 0)
      starts[op] =
          std::max(starts[op], std::min(starts[gathers[i - 1]], uses[op]));
  }
  return starts;
}

//===--- orders -----------------------------------------------------------===//

Emitter::Emitter(const BlockGraph &graph, ArrayRef<unsigned> sequence)
    : graph(graph), sequence(sequence), numberInSequence(graph.ops.size(), -1),
      state(graph.ops.size(), State::open) {
  for (auto [i, op] : llvm::enumerate(sequence))
    numberInSequence[op] = i;
}

bool Emitter::emit(unsigned op) {
  if (state[op] == State::done)
    return true;
  if (state[op] == State::begun)
    return false;
  state[op] = State::begun;
  if (int64_t number = numberInSequence[op]; number > 0)
    if (!emit(sequence[number - 1]))
      return false;
  for (unsigned pred : graph.preds[op])
    if (!emit(pred))
      return false;
  for (unsigned pred : graph.preds[op])
    if (graph.isCollective(pred))
      needs(pred);
  state[op] = State::done;
  appended(op);
  return true;
}

namespace {
struct Collector : Emitter {
  using Emitter::Emitter;
  void appended(unsigned op) override { order.push_back(op); }
  SmallVector<unsigned> order;
};
} // namespace

bool tessera::overlap::reorder(const BlockGraph &graph,
                               ArrayRef<unsigned> sequence,
                               ArrayRef<unsigned> wanted) {
  Collector collector(graph, sequence);
  for (unsigned op : wanted)
    if (!collector.emit(op))
      return false;
  for (unsigned op = 0; op < graph.ops.size(); ++op)
    if (!collector.emit(op))
      return false;
  for (unsigned op : collector.order)
    graph.ops[op]->moveBefore(graph.block.getTerminator());
  return true;
}
