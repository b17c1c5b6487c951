// One decision for all groups of devices. Ranks must start collectives in one
// order, but groups with other local shapes have other clusters and costs. So
// the dependences of all programs count, and the costs of the first.
#include "passes/overlap/StartOrder.h"
#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphOps.h"
#include "passes/overlap/BlockGraph.h"
#include "passes/overlap/Costs.h"
#include <map>
#include <set>

using namespace mlir;
using namespace tessera;
using namespace tessera::overlap;

//===--- constraints of all programs --------------------------------------===//

namespace {
/// A collective, or a loop that contains some, in all programs.
struct Item {
  llvm::BitVector after;   ///< items that it waits for in any of them
  int64_t bytes = 0;       ///< the most of any of them
  bool isPrefetch = true;  ///< in all of them
  bool isEven = true;      ///< likewise: all shards have one size
  int64_t when = 0;        ///< key: when it may start, by the first program
  unsigned firstUse = 0;   ///< in the first program
  Operation *op = nullptr; ///< in the first program
};
} // namespace

// What two programs must agree in: kind, axes and element type, not sizes.
static bool isSame(Operation *a, Operation *b) {
  if (a->getName() != b->getName() || isa<graph::LoopOp>(a))
    return a->getName() == b->getName();
  auto elementType = [](Operation *op) {
    return cast<RankedTensorType>(op->getOperand(0).getType()).getElementType();
  };
  auto one = cast<dist::CollectiveOpInterface>(a),
       other = cast<dist::CollectiveOpInterface>(b);
  return one.getAxes() == other.getAxes() &&
         one.getReduction() == other.getReduction() &&
         elementType(a) == elementType(b);
}

static LogicalResult verifySame(const BlockGraph &first,
                                const BlockGraph &other) {
  size_t common = std::min(first.items.size(), other.items.size());
  for (size_t i = 0; i < common; ++i) {
    Operation *a = first.ops[first.items[i]], *b = other.ops[other.items[i]];
    if (!isSame(a, b))
      return a->emitError("is collective ")
             << i << " of this block, where the program of other devices has '"
             << b->getName()
             << "'; all programs must have the same collectives in one order";
  }
  if (first.items.size() == other.items.size())
    return success();
  const BlockGraph &longer = first.items.size() > common ? first : other;
  return longer.ops[longer.items[common]]->emitError("is collective ")
         << common << " of this block, but the program of other devices has "
         << "only " << common
         << "; all programs must have the same collectives in one order";
}

// Even shards along the first dimension with more than one entry: then a shard
// is contiguous in each piece of a pack.
static bool isEven(Operation *op) {
  auto isRun = [](auto collective, RankedTensorType whole) {
    int64_t dim = collective.getDim();
    return !collective.getShares() &&
           llvm::all_of(whole.getShape().take_front(dim),
                        [](int64_t size) { return size == 1; });
  };
  if (auto gather = dyn_cast<dist::AllGatherOp>(op))
    return isRun(gather, cast<RankedTensorType>(gather.getInput().getType()));
  if (auto scatter = dyn_cast<dist::ReduceScatterOp>(op))
    return isRun(scatter, cast<RankedTensorType>(scatter.getInput().getType()));
  return isa<dist::AllReduceOp>(op);
}

// Exchanges (pipelines, experts) keep their order. Stages of a pipeline are
// different programs, so only the order that they were given is the same for
// all.
static bool keepsOrder(Operation *op) {
  if (isa<graph::LoopOp>(op))
    return true;
  auto collective = dyn_cast<dist::CollectiveOpInterface>(op);
  return collective &&
         (collective.keepsOrder() ||
          llvm::any_of(collective.getAxes().getAsRange<dist::AxisRefAttr>(),
                       [](dist::AxisRefAttr axis) {
                         return axis.getName() == dist::kPipeAxis;
                       }));
}

static SmallVector<Item> join(ArrayRef<BlockGraph> graphs) {
  SmallVector<Item> items(graphs.front().items.size());
  for (const BlockGraph &graph : graphs) {
    SmallVector<llvm::BitVector> before = graph.itemsBefore();
    SmallVector<int64_t> positions = graph.positions();
    for (auto [item, op] : llvm::zip(items, graph.items)) {
      item.after |= before[op];
      item.isPrefetch &= graph.isPrefetch(op, positions);
      if (!graph.isCollective(op)) {
        item.isEven = false;
        continue;
      }
      item.isEven &= isEven(graph.ops[op]) && !keepsOrder(graph.ops[op]);
      item.bytes = std::max(item.bytes, bytesOf(graph.ops[op]));
    }
  }
  // Transitively: an item may wait in one program and its predecessor in
  // another.
  for (Item &item : items)
    for (unsigned i = 0; i < items.size(); ++i)
      if (item.after.test(i))
        item.after |= items[i].after;
  return items;
}

//===--- order ------------------------------------------------------------===//

// Half steps of the first program's ops: a collective may start after the last
// op that computes its operand; a prefetch starts before some op.
static void setTimes(const BlockGraph &graph, SmallVectorImpl<Item> &items) {
  SmallVector<int64_t> positions = graph.positions();
  SmallVector<unsigned> uses = graph.firstUses(),
                        prefetch = graph.prefetchStarts();
  int64_t exchanges = -1;
  for (auto [item, op] : llvm::zip(items, graph.items)) {
    item.op = graph.ops[op];
    item.firstUse = uses[op];
    item.when =
        item.isPrefetch ? 2 * int64_t(prefetch[op]) : 2 * positions[op] + 1;
    if (keepsOrder(item.op))
      exchanges = item.when = std::max(exchanges, item.when);
  }
}

static SmallVector<unsigned> sorted(ArrayRef<Item> items) {
  SmallVector<unsigned> order, missing;
  // Exchanges keep their order among themselves.
  SmallVector<llvm::BitVector> after;
  std::optional<unsigned> exchange;
  for (auto [i, item] : llvm::enumerate(items)) {
    after.push_back(item.after);
    if (keepsOrder(item.op)) {
      if (exchange)
        after.back().set(*exchange);
      exchange = i;
    }
    missing.push_back(after.back().count());
  }
  std::set<std::tuple<int64_t, unsigned, unsigned>> ready;
  auto add = [&](unsigned i) {
    ready.insert(
        {items[i].when, items[i].isPrefetch ? items[i].firstUse : 0, i});
  };
  for (unsigned i = 0; i < items.size(); ++i)
    if (missing[i] == 0)
      add(i);
  while (!ready.empty()) {
    unsigned next = std::get<2>(*ready.begin());
    ready.erase(ready.begin());
    order.push_back(next);
    for (unsigned i = 0; i < items.size(); ++i)
      if (after[i].test(next) && --missing[i] == 0)
        add(i);
  }
  return order;
}

//===--- buckets ----------------------------------------------------------===//

namespace {
/// Groups items of a start order. A group of prefetches starts with its first
/// item, because parameters are available. Any other starts with its last item,
/// and is closed before any op that needs one of its items.
class Buckets {
public:
  Buckets(const Costs &costs, ArrayRef<Item> items, int64_t prefetchRoom)
      : costs(costs), items(items), prefetchRoom(prefetchRoom) {
    for (const Item &item : items)
      if (item.isEven)
        totals[keyOf(item)] += item.bytes;
  }

  SmallVector<SmallVector<unsigned>> group(ArrayRef<unsigned> order) {
    for (auto [position, item] : llvm::enumerate(order))
      add(position, item);
    while (!open.empty())
      close(open.begin());
    return llvm::map_to_vector(groups,
                               [](auto &group) { return group.second; });
  }

private:
  struct Bucket {
    SmallVector<unsigned> members;
    int64_t bytes = 0;
    size_t start = 0; ///< position in the start order
  };
  using Key =
      std::tuple<void *, const void *, const void *, const void *, bool>;
  using Open = std::map<Key, Bucket>;

  static Key keyOf(const Item &item) {
    auto op = cast<dist::CollectiveOpInterface>(item.op);
    Type type =
        cast<RankedTensorType>(op->getOperand(0).getType()).getElementType();
    return {op->getName().getAsOpaquePointer(),
            op.getAxes().getAsOpaquePointer(),
            op.getReduction().getAsOpaquePointer(), type.getAsOpaquePointer(),
            item.isPrefetch};
  }

  Open::iterator close(Open::iterator bucket) {
    groups[bucket->second.start] = bucket->second.members;
    return open.erase(bucket);
  }

  // Closes the groups that the item needs.
  void closeFor(unsigned item) {
    for (auto bucket = open.begin(); bucket != open.end();) {
      bool needed = llvm::any_of(bucket->second.members, [&](unsigned member) {
        return items[item].after.test(member);
      });
      bucket = needed ? close(bucket) : std::next(bucket);
    }
  }

  // A computing op between the items' starts that needs the first would wait
  // for the last.
  bool mayJoin(const Bucket &bucket, const Item &item) const {
    if (item.isPrefetch)
      return true;
    return llvm::all_of(bucket.members, [&](unsigned member) {
      return 2 * int64_t(items[member].firstUse) > item.when;
    });
  }

  void add(size_t position, unsigned i) {
    const Item &item = items[i];
    closeFor(i);
    // A loop that contains collectives is an item too.
    int64_t most = item.isEven ? bucketBytes(item) : 0;
    if (!item.isEven || 2 * item.bytes > most) {
      groups[position] = {i};
      return;
    }
    Key key = keyOf(item);
    auto bucket = open.find(key);
    if (bucket != open.end() && (bucket->second.bytes + item.bytes > most ||
                                 !mayJoin(bucket->second, item))) {
      close(bucket);
      bucket = open.end();
    }
    if (bucket == open.end()) {
      bucket = open.emplace(key, Bucket{}).first;
      bucket->second.start = position;
    }
    if (!item.isPrefetch)
      bucket->second.start = position;
    bucket->second.members.push_back(i);
    bucket->second.bytes += item.bytes;
  }

  // Half of the room is for gathers that have not started.
  int64_t bucketBytes(const Item &item) const {
    int64_t bytes =
        costs.bucketBytes(cast<dist::CollectiveOpInterface>(item.op),
                          totals.find(keyOf(item))->second);
    return item.isPrefetch ? std::min(bytes, prefetchRoom / 2) : bytes;
  }

  const Costs &costs;
  ArrayRef<Item> items;
  int64_t prefetchRoom;
  std::map<Key, int64_t> totals;
  Open open;
  std::map<size_t, SmallVector<unsigned>> groups; ///< by start
};
} // namespace

LogicalResult tessera::overlap::decideStarts(ArrayRef<Block *> blocks) {
  std::vector<BlockGraph> graphs;
  for (Block *block : blocks)
    graphs.emplace_back(*block);
  for (const BlockGraph &graph : ArrayRef(graphs).drop_front())
    if (failed(verifySame(graphs.front(), graph)))
      return failure();
  for (const BlockGraph &graph : graphs)
    for (unsigned op : graph.items)
      if (graph.isCollective(op) &&
          isa<dist::PendingType>(graph.ops[op]->getResult(0).getType()))
        return graph.ops[op]->emitError(
            "is started already; order-collectives expects blocking "
            "collectives");
  SmallVector<Item> items = join(graphs);
  setTimes(graphs.front(), items);
  const Costs costs(blocks.front()->getParentOp());
  Builder builder(blocks.front()->getParentOp()->getContext());
  for (auto [number, group] :
       llvm::enumerate(Buckets(costs, items, graphs.front().prefetchRoom())
                           .group(sorted(items))))
    for (unsigned item : group)
      for (const BlockGraph &graph : graphs)
        graph.ops[graph.items[item]]->setAttr(
            dist::kStartAttr, builder.getI64IntegerAttr(number));
  return success();
}
