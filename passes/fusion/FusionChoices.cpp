#include "passes/fusion/FusionChoices.h"
#include "dialects/dist/DistOps.h"
#include "passes/fusion/ClusterExpression.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// Limits of recomputation in a group, in ops and in additions for each element.
static constexpr size_t kMaxConeOps = 24;
static constexpr int64_t kMaxConeCost = 48;

//===--- epilogues --------------------------------------------------------===//

Fed::Fed(const FusionGraph &graph, unsigned id)
    : graph(graph), next(graph.group(id).members.front()), found(graph.size()) {
  for (unsigned member : graph.group(id).members)
    found.set(member);
}

bool Fed::contains(unsigned node) {
  for (; next <= node; ++next)
    if (llvm::any_of(graph.producers(next),
                     [&](unsigned producer) { return found.test(producer); }))
      found.set(next);
  return found.test(node);
}

// Whether an elementwise op reads nothing else that depends on the group, such
// as the statistics of its rows.
bool Epilogue::follows(unsigned node, unsigned depth) {
  return depth && isa<Elementwise>(graph.op(node)) &&
         llvm::all_of(graph.producers(node), [&](unsigned producer) {
           return graph.groupOf(producer) == id || !fed.contains(producer) ||
                  follows(producer, depth - 1);
         });
}

// Whether the result has to be in memory: it has a reader that is neither a
// reduction nor elementwise next to one. Those compute it from stored values.
bool Epilogue::mustBeStored(unsigned node, unsigned depth) {
  return depth && llvm::any_of(graph.users(node), [&](unsigned user) {
           if (isa<ReduceOp>(graph.op(user)))
             return false;
           if (!isa<Elementwise>(graph.op(user)))
             return true;
           return graph.groupOf(user) == id ||
                  (follows(user, kDepth) && mustBeStored(user, depth - 1));
         });
}

// In a sum of products the last one performs the additions. If the first one
// did, all others would be live until then, such as the gradients of a weight
// for each microbatch of a pipeline.
bool Epilogue::waitsForProduct(unsigned node) const {
  if (!isa<AddOp>(graph.op(node)))
    return false;
  auto productOf = [&](unsigned group) -> std::optional<unsigned> {
    for (unsigned member : graph.group(group).members)
      if (isProduct(graph.op(member)))
        return member;
    return std::nullopt;
  };
  std::optional<unsigned> own = productOf(id);
  return own && llvm::any_of(graph.producers(node), [&](unsigned producer) {
           std::optional<unsigned> other = productOf(graph.groupOf(producer));
           return other && *other > *own;
         });
}

// Likewise in a sum of sums of columns: what the first ones read, such as the
// activations of a microbatch, would be live until the last.
bool Epilogue::waitsForColumns(const FusionGroup &group) const {
  const FusionGroup &own = graph.group(id);
  if (own.kind != ClusterKind::column)
    return false;
  return llvm::any_of(group.members, [&](unsigned member) {
    return llvm::any_of(graph.producers(member), [&](unsigned producer) {
      const FusionGroup &other = graph.group(graph.groupOf(producer));
      return other.kind == ClusterKind::column &&
             other.members.front() > own.members.back();
    });
  });
}

// Partial values of other devices arrive while this device computes its own
// product. The product itself must not add them, since it would wait for them.
bool Epilogue::waitsForPermute(unsigned node) const {
  return llvm::any_of(graph.producers(node), [&](unsigned producer) {
    auto permute = dyn_cast<dist::PermuteOp>(graph.op(producer));
    return permute &&
           llvm::none_of(permute.getAxes().getAsRange<dist::AxisRefAttr>(),
                         [](dist::AxisRefAttr axis) {
                           return axis.getName() == dist::kPipeAxis;
                         });
  });
}

// A product of the forward pass would store what the backward pass recomputes,
// from then until it is read.
bool Epilogue::runsBackward(unsigned node) const {
  LayerAttr of = graph.group(id).layer,
            other = graph.op(node)->getAttrOfType<LayerAttr>(kLayerAttr);
  return of && of.isForward() && other && !other.isForward();
}

bool Epilogue::takes(unsigned node) {
  if (waitsForProduct(node) || waitsForPermute(node) || runsBackward(node))
    return false;
  bool replaces = llvm::all_of(graph.producers(node), [&](unsigned producer) {
    return graph.groupOf(producer) != id ||
           llvm::all_of(graph.users(producer), [&](unsigned other) {
             return other == node || graph.groupOf(other) == id;
           });
  });
  return replaces || mustBeStored(node, kDepth);
}

//===--- recomputation ----------------------------------------------------===//

static int64_t bytesOf(Value value) {
  RankedTensorType type = tensorType(value);
  return type.getNumElements() * type.getElementTypeBitWidth() / 8;
}

// A sum over microbatches, which belongs to no layer, is in the kernel of its
// last term. If the kernel of the next one did the addition again, it would
// keep both terms until then.
static bool isSumSoFar(const FusionGroup &group, Operation *op) {
  bool hasTerm = group.kind == ClusterKind::contraction ||
                 group.kind == ClusterKind::grouped ||
                 group.kind == ClusterKind::column;
  return hasTerm && isa<AddOp>(op) && !op->hasAttr(kLayerAttr);
}

// Statistics of rows and the like cost next to nothing to store.
bool Cone::isStored(unsigned producer) const {
  Operation *op = graph.op(producer);
  return !isa<Elementwise>(op) || operands.contains(producer) ||
         isSumSoFar(graph.group(graph.groupOf(producer)), op) ||
         graph.isStored(producer, id) ||
         tensorType(op->getResult(0)).getNumElements() != elements;
}

Cone::Cone(FusionGraph &graph, unsigned id) : graph(graph), id(id) {
  FusionGroup &group = graph.group(id);
  elements = group.kept * std::max<int64_t>(group.reduced, 1);
  SmallVector<unsigned> work;
  for (unsigned member : group.members)
    if (isProduct(graph.op(member)))
      operands.insert(graph.producers(member).begin(),
                      graph.producers(member).end());
    else
      work.push_back(member);
  while (!work.empty()) {
    unsigned next = work.pop_back_val();
    for (unsigned producer : graph.producers(next)) {
      if (graph.groupOf(producer) == id || isStored(producer) ||
          !nodes.insert(producer))
        continue;
      if (graph.groupOf(next) == id)
        saved += 2 * bytesOf(graph.op(producer)->getResult(0));
      cost += nodeCost({ExprNode::elementwise, {}, graph.op(producer)});
      work.push_back(producer);
    }
  }
}

int64_t Cone::bytesRead() const {
  int64_t bytes = 0;
  llvm::DenseSet<Value> counted;
  for (unsigned node : nodes)
    for (Value operand : graph.op(node)->getOperands()) {
      while (Operation *op = operand.getDefiningOp()) {
        if (!isFree(op) || op->getNumOperands() == 0)
          break;
        operand = op->getOperand(0);
      }
      std::optional<unsigned> producer = graph.nodeOf(operand);
      if ((!producer || !nodes.contains(*producer)) &&
          tensorType(operand).getNumElements() >= elements &&
          counted.insert(operand).second)
        bytes += bytesOf(operand);
    }
  return bytes;
}

bool Cone::isWorthwhile() const {
  return !nodes.empty() && nodes.size() <= kMaxConeOps &&
         cost <= kMaxConeCost && bytesRead() <= saved;
}
