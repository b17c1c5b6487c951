#include "passes/fusion/FusionGraph.h"
#include "dialects/graph/GraphQuantOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// Bytes: where a kernel's buffers may start.
static constexpr int64_t kBufferAlignment = 64;

static bool upcastsFloat(Operation *op) {
  auto convert = dyn_cast<ConvertOp>(op);
  if (!convert)
    return false;
  Type from = tensorType(convert.getInput()).getElementType();
  Type to = tensorType(convert.getResult()).getElementType();
  return isa<FloatType>(from) && isa<FloatType>(to) &&
         to.getIntOrFloatBitWidth() > from.getIntOrFloatBitWidth();
}

// A box is one run of memory if all dimensions after the first that has more
// than one entry are whole.
static bool isContiguous(SliceOp slice) {
  ArrayRef<int64_t> box = tensorType(slice.getResult()).getShape();
  ArrayRef<int64_t> whole = tensorType(slice.getInput()).getShape();
  size_t first = 0;
  while (first < box.size() && box[first] == 1)
    ++first;
  for (size_t dim = first + 1; dim < box.size(); ++dim)
    if (box[dim] != whole[dim])
      return false;
  return true;
}

bool tessera::hasAddress(SliceOp slice) {
  int64_t offset = 0;
  for (auto [start, size] :
       llvm::zip(slice.getStart(), tensorType(slice.getInput()).getShape()))
    offset = offset * size + start;
  unsigned bits = tensorType(slice.getInput()).getElementTypeBitWidth();
  return offset * ((bits + 7) / 8) % kBufferAlignment == 0 &&
         isContiguous(slice);
}

bool tessera::isReadInMemory(SliceOp slice) {
  RankedTensorType type = tensorType(slice.getResult());
  bool isRow = isa<BlockArgument>(slice.getInput()) && type.getRank() > 1 &&
               type.getDimSize(0) == 1;
  return (type.getNumElements() == 1 || isRow) && hasAddress(slice);
}

bool tessera::isStack(ConcatOp concat) {
  auto isRow = [](Value value) {
    RankedTensorType type = tensorType(value);
    while (auto view = value.getDefiningOp<ReshapeOp>())
      value = view.getInput();
    return type.getRank() > 1 && type.getDimSize(0) == 1 &&
           !value.getDefiningOp<ConstantOp>();
  };
  return concat.getDim() == 0 && llvm::all_of(concat.getInputs(), isRow);
}

bool tessera::isFree(Operation *op) {
  if (auto constant = dyn_cast<ConstantOp>(op))
    return cast<DenseElementsAttr>(constant.getValue()).isSplat();
  if (auto slice = dyn_cast<SliceOp>(op); slice && isReadInMemory(slice))
    return false;
  return isa<ReshapeOp, TransposeOp, BroadcastOp, SliceOp, IotaOp, RandomOp,
             DequantizeOp, DequantizeRowsOp>(op) ||
         upcastsFloat(op) ||
         (isa<ConvertOp>(op) && op->getOperand(0).getDefiningOp<IotaOp>());
}

bool tessera::readsQuantizedTable(Operation *op) {
  if (auto cluster = dyn_cast<ClusterOp>(op))
    return cluster.getKind() == ClusterKind::gather &&
           llvm::any_of(cluster.getBody().front(), [](Operation &inner) {
             return readsQuantizedTable(&inner);
           });
  auto rows = dyn_cast<EmbeddingOp>(op);
  return rows && rows.getTable().getDefiningOp<DequantizeOp>();
}

bool tessera::keepsOrder(Operation *op) {
  return isa<ReshapeOp>(op) || upcastsFloat(op);
}

// The kind that an op alone would have; none where it stays outside clusters.
static std::optional<ClusterKind> kindOfOp(Operation *op) {
  if (isa<DynamicSliceOp, DynamicUpdateOp, ConstantOp, SliceOp>(op))
    return {};
  if (auto concat = dyn_cast<ConcatOp>(op); concat && isStack(concat))
    return {};
  if (auto fusable = dyn_cast<Fusable>(op))
    return fusable.getClusterKind();
  return {};
}

// A smaller sum is cheaper in one kernel, after all of its terms.
static constexpr int64_t kLargeSum = 1 << 20;

static bool addsToLargeSum(Operation *op) {
  return op->hasAttr(kMicrobatchSumAttr) &&
         graph::detail::countBytes(op->getResult(0)) >= kLargeSum;
}

FusionGroup FusionGraph::single(unsigned node) const {
  FusionGroup group;
  group.members = {node};
  group.kind = kindOfOp(nodes[node]);
  if (!group.kind)
    return group;
  group.layer = nodes[node]->getAttrOfType<LayerAttr>(kLayerAttr);
  group.addsMicrobatch = addsToLargeSum(nodes[node]);
  group.kept = tensorType(nodes[node]->getResult(0)).getNumElements();
  if (auto reduce = dyn_cast<ReduceOp>(nodes[node]); reduce && group.kept)
    group.reduced = tensorType(reduce.getInput()).getNumElements() / group.kept;
  return group;
}

FusionGraph::FusionGraph(Block &block) {
  for (Operation &op : block) {
    if (isFree(&op))
      continue;
    numbers[&op] = nodes.size();
    nodes.push_back(&op);
  }
  succs.resize(nodes.size());
  preds.resize(nodes.size());
  std::optional<unsigned> lastCollective;
  for (unsigned node = 0; node < nodes.size(); ++node) {
    // No group may need one collective and feed an earlier one.
    if (hasCollective(nodes[node])) {
      if (lastCollective)
        connect(*lastCollective, node, {false, false});
      lastCollective = node;
    }
    // A loop reads what its body reads.
    nodes[node]->walk([&](Operation *op) {
      for (Value operand : op->getOperands())
        addEdges(operand, node, {true, false});
    });
    groupIds.push_back(node);
    groups.push_back(single(node));
    order.append();
  }
}

void FusionGraph::connect(unsigned producer, unsigned user, FusionEdge edge) {
  auto [it, isNew] = edges.try_emplace({producer, user}, edge);
  if (!isNew) {
    it->second.inOrder &= edge.inOrder;
    it->second.repeats |= edge.repeats;
    it->second.repeatsLast &= edge.repeatsLast;
    return;
  }
  succs[producer].push_back(user);
  preds[user].push_back(producer);
}

void FusionGraph::addEdges(Value value, unsigned user, FusionEdge edge) {
  if (std::optional<unsigned> producer = nodeOf(value)) {
    if (*producer != user)
      connect(*producer, user, edge);
    return;
  }
  Operation *op = value.getDefiningOp();
  if (!op || op->getBlock() != nodes[user]->getBlock())
    return;
  edge.inOrder &= keepsOrder(op);
  if (auto broadcast = dyn_cast<BroadcastOp>(op);
      broadcast && tensorType(op->getOperand(0)).getNumElements() <
                       tensorType(op->getResult(0)).getNumElements()) {
    edge.repeats = true;
    for (auto [i, dim] : llvm::enumerate(broadcast.getDims()))
      edge.repeatsLast &= dim == static_cast<int64_t>(i);
  }
  for (Value operand : op->getOperands())
    addEdges(operand, user, edge);
}

std::optional<unsigned> FusionGraph::nodeOf(Value value) const {
  Operation *op = value.getDefiningOp();
  auto it = op ? numbers.find(op) : numbers.end();
  if (it == numbers.end())
    return {};
  return it->second;
}

SmallVector<unsigned> FusionGraph::liveGroups() const {
  SmallVector<unsigned> live;
  for (unsigned id = 0; id < groups.size(); ++id)
    if (!groups[id].members.empty())
      live.push_back(id);
  return live;
}

void FusionGraph::merge(unsigned id, unsigned other, ClusterKind kind) {
  order.merge(id, other,
              [&](unsigned user, llvm::function_ref<void(unsigned)> use) {
                for (unsigned member : groups[user].members)
                  for (unsigned producer : preds[member])
                    use(groupIds[producer]);
              });
  FusionGroup &into = groups[id], &from = groups[other];
  for (Operation *op : from.repeats) {
    into.repeats.insert(op);
    SmallVector<unsigned, 2> &ids = repeaters[op];
    std::replace(ids.begin(), ids.end(), other, id);
  }
  if (from.reduced && !into.reduced) {
    into.kept = from.kept;
    into.reduced = from.reduced;
  }
  into.kind = kind;
  if (!into.layer)
    into.layer = from.layer;
  into.addsMicrobatch |= from.addsMicrobatch;
  for (unsigned node : from.members)
    groupIds[node] = id;
  llvm::append_range(into.members, from.members);
  llvm::sort(into.members);
  from = FusionGroup();
}

SmallVector<unsigned> FusionGraph::dissolve(unsigned id) {
  SmallVector<unsigned> members = groups[id].members, singles;
  for (Operation *op : groups[id].repeats)
    llvm::erase(repeaters[op], id);
  groups[id] = FusionGroup();
  order.replace(id, members.size());
  for (unsigned node : members) {
    groupIds[node] = groups.size();
    singles.push_back(groups.size());
    groups.push_back(single(node));
  }
  return singles;
}

// Whether a path leads from group `from` to group `to` through a third group
// between them.
bool FusionGraph::pathOutside(unsigned from, unsigned to) const {
  if (!order.mayPrecede(from, to))
    return false;
  llvm::BitVector seen(groups.size());
  seen.set(from);
  SmallVector<unsigned> work;
  auto expand = [&](unsigned id) {
    for (unsigned member : groups[id].members)
      for (unsigned user : succs[member]) {
        unsigned next = groupIds[user];
        if (next == to && id != from)
          return true;
        if (next == to || seen.test(next) || !order.mayPrecede(next, to))
          continue;
        seen.set(next);
        work.push_back(next);
      }
    return false;
  };
  if (expand(from))
    return true;
  while (!work.empty())
    if (expand(work.pop_back_val()))
      return true;
  return false;
}

llvm::BitVector FusionGraph::reachableFrom(unsigned id) const {
  llvm::BitVector seen(nodes.size());
  SmallVector<unsigned> work(groups[id].members);
  while (!work.empty())
    for (unsigned user : succs[work.pop_back_val()])
      if (!seen.test(user)) {
        seen.set(user);
        work.push_back(user);
      }
  return seen;
}

bool FusionGraph::wouldCycle(unsigned a, unsigned b) const {
  return pathOutside(a, b) || pathOutside(b, a);
}

bool FusionGraph::feedsOnly(unsigned id, unsigned other) const {
  for (unsigned member : groups[id].members)
    for (unsigned user : succs[member])
      if (groupIds[user] != id && groupIds[user] != other)
        return false;
  return true;
}

bool FusionGraph::isRead(Value value, unsigned id) const {
  Operation *op = value.getDefiningOp();
  Block *block = nodes.front()->getBlock();
  for (Operation *user : value.getUsers()) {
    Operation *here = block->findAncestorOpInBlock(*user);
    if (here == user && isFree(user)) {
      if (llvm::any_of(user->getResults(),
                       [&](Value result) { return isRead(result, id); }))
        return true;
      continue;
    }
    // A finished cluster is not a node.
    auto it = numbers.find(here);
    if (it == numbers.end())
      return true;
    unsigned reader = groupIds[it->second];
    if (reader != id && !(op && groups[reader].repeats.contains(op)))
      return true;
    auto again = repeaters.find(here);
    if (again == repeaters.end())
      continue;
    for (unsigned repeater : again->second)
      if (repeater != id && !(op && groups[repeater].repeats.contains(op)))
        return true;
  }
  return false;
}

FusionEdge FusionGraph::edgeBetween(unsigned from, unsigned to) const {
  FusionEdge joined{true, false};
  for (unsigned member : groups[from].members)
    for (unsigned user : succs[member])
      if (groupIds[user] == to) {
        FusionEdge edge = edges.lookup({member, user});
        joined.inOrder &= edge.inOrder;
        joined.repeats |= edge.repeats;
        joined.repeatsLast &= edge.repeatsLast;
      }
  return joined;
}

bool FusionGraph::isStored(unsigned node, unsigned except) const {
  return llvm::any_of(succs[node], [&](unsigned user) {
    return groupIds[user] != groupIds[node] && groupIds[user] != except;
  });
}

void FusionGraph::repeat(unsigned id, ArrayRef<unsigned> cone) {
  unsigned reader = groups[id].members.front();
  for (unsigned node : cone) {
    if (groups[id].repeats.insert(nodes[node]).second)
      repeaters[nodes[node]].push_back(id);
    llvm::erase_if(succs[node],
                   [&](unsigned user) { return groupIds[user] == id; });
  }
  for (unsigned member : groups[id].members)
    llvm::erase_if(preds[member], [&](unsigned producer) {
      return llvm::is_contained(cone, producer);
    });
  for (unsigned node : cone)
    for (unsigned leaf : preds[node])
      if (!llvm::is_contained(cone, leaf))
        connect(leaf, reader, {false, true});
}

llvm::SmallSetVector<Value, 8> FusionGraph::inputs(unsigned id) const {
  const FusionGroup &group = groups[id];
  Block *block = nodes.front()->getBlock();
  llvm::SmallSetVector<Value, 8> found;
  llvm::DenseSet<Value> seen;
  SmallVector<Value> work;
  for (unsigned member : group.members)
    llvm::append_range(work, nodes[member]->getOperands());
  while (!work.empty()) {
    Value value = work.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    Operation *op = value.getDefiningOp();
    std::optional<unsigned> node = nodeOf(value);
    if (node && groupIds[*node] == id)
      continue;
    if (op &&
        ((op->getBlock() == block && isFree(op)) || group.repeats.contains(op)))
      llvm::append_range(work, op->getOperands());
    else
      found.insert(value);
  }
  return found;
}

SmallVector<unsigned> FusionGraph::producersOf(Value value) const {
  SmallVector<unsigned> found;
  SmallVector<Value> work{value};
  Block *block = nodes.front()->getBlock();
  while (!work.empty()) {
    Value next = work.pop_back_val();
    Operation *op = next.getDefiningOp();
    if (std::optional<unsigned> node = nodeOf(next))
      found.push_back(*node);
    else if (op && op->getBlock() == block)
      llvm::append_range(work, op->getOperands());
  }
  return found;
}

unsigned FusionGraph::countOperands(unsigned a, unsigned b) const {
  llvm::DenseSet<Value> read;
  unsigned count = 0;
  for (unsigned id : {a, b}) {
    for (unsigned member : groups[id].members)
      count += llvm::any_of(succs[member], [&](unsigned user) {
        return groupIds[user] != a && groupIds[user] != b;
      });
    for (Value input : inputs(id)) {
      std::optional<unsigned> node = nodeOf(input);
      if (!node || (groupIds[*node] != a && groupIds[*node] != b))
        read.insert(input);
    }
  }
  return count + read.size();
}
