#include "passes/fusion/FusionRules.h"
#include "passes/fusion/FusionChoices.h"
#include "passes/fusion/Merges.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace {

class Rules {
public:
  explicit Rules(FusionGraph &graph) : graph(graph), merges(graph) {}
  void run();

private:
  bool tryMerge(unsigned p, unsigned q);

  // Merges with all neighbours that `wanted` names until none is left.
  void absorbConsumers(unsigned node,
                       llvm::function_ref<bool(FusionGroup &)> wanted);
  void absorbEpilogue(unsigned node);
  void absorbProducers(unsigned node,
                       llvm::function_ref<bool(FusionGroup &)> wanted);
  void growAttentionGrad(unsigned node);
  bool readsAll(ConcatOp concat, unsigned node) const;
  void growRow(unsigned node);
  void growElementwise(unsigned node);
  void growReduction(unsigned node);
  void repeatProducers(unsigned node);
  bool delaysCollective(unsigned first, unsigned other,
                        ArrayRef<unsigned> collectives) const;
  void shareColumns();

  bool isKind(unsigned node, ClusterKind kind) {
    return graph.group(graph.groupOf(node)).kind == kind;
  }
  FusionGraph &graph;
  const Merges merges;
};

} // namespace

bool Rules::tryMerge(unsigned p, unsigned q) {
  if (p == q)
    return false;
  std::optional<ClusterKind> kind = merges.kindOf(p, q);
  if (!kind || merges.obstacle(p, q))
    return false;
  graph.merge(p, q, *kind);
  return true;
}

//===--- growing ----------------------------------------------------------===//

void Rules::absorbConsumers(unsigned node,
                            llvm::function_ref<bool(FusionGroup &)> wanted) {
  for (bool changed = true; changed;) {
    changed = false;
    unsigned id = graph.groupOf(node);
    SmallVector<unsigned> members = graph.group(id).members;
    for (unsigned member : members)
      for (unsigned user : SmallVector<unsigned>(graph.users(member))) {
        unsigned next = graph.groupOf(user);
        if (next != id && wanted(graph.group(next)) && tryMerge(id, next))
          changed = true;
      }
  }
}

void Rules::absorbProducers(unsigned node,
                            llvm::function_ref<bool(FusionGroup &)> wanted) {
  for (bool changed = true; changed;) {
    changed = false;
    unsigned id = graph.groupOf(node);
    SmallVector<unsigned> members = graph.group(id).members;
    for (unsigned member : members)
      for (unsigned producer : SmallVector<unsigned>(graph.producers(member))) {
        unsigned next = graph.groupOf(producer);
        id = graph.groupOf(node);
        if (next != id && wanted(graph.group(next)) && tryMerge(next, id))
          changed = true;
      }
  }
}

// The elementwise epilogue of the product or sum.
void Rules::absorbEpilogue(unsigned node) {
  Epilogue epilogue(graph, graph.groupOf(node));
  absorbConsumers(node, [&](FusionGroup &group) {
    return group.kind == ClusterKind::elementwise &&
           epilogue.takes(group.members.front()) &&
           !epilogue.waitsForColumns(group);
  });
}

// Whether the concatenation is of all results of the node, each once.
bool Rules::readsAll(ConcatOp concat, unsigned node) const {
  Operation *op = graph.op(node);
  return concat.getInputs().size() == op->getNumResults() &&
         llvm::none_of(op->getResults(),
                       [](Value result) { return result.use_empty(); });
}

// A concatenation of all results of one attention_grad joins it.
void Rules::growAttentionGrad(unsigned node) {
  unsigned id = graph.groupOf(node);
  for (unsigned user : graph.users(node)) {
    auto concat = dyn_cast<ConcatOp>(graph.op(user));
    if (!concat || graph.producers(user).size() != 1 ||
        !graph.feedsOnly(id, graph.groupOf(user)) || !readsAll(concat, node))
      continue;
    graph.merge(id, graph.groupOf(user), ClusterKind::attention_grad);
    return;
  }
}

void Rules::growRow(unsigned node) {
  auto fits = [](FusionGroup &group) {
    return isElementwise(group) || group.kind == ClusterKind::row;
  };
  absorbConsumers(node, fits);
  absorbProducers(node, fits);
  absorbConsumers(node, fits);
}

void Rules::growElementwise(unsigned node) {
  absorbConsumers(node, isElementwise);
}

void Rules::growReduction(unsigned node) {
  absorbProducers(node, [](FusionGroup &group) {
    return group.kind == ClusterKind::elementwise;
  });
  if (!isKind(node, ClusterKind::column))
    return;
  absorbEpilogue(node);
}

void Rules::repeatProducers(unsigned node) {
  unsigned id = graph.groupOf(node);
  if (Cone cone(graph, id); cone.isWorthwhile())
    graph.repeat(id, cone.nodes.getArrayRef());
}

// Whether a collective that waits for the first group precedes the other:
// merged, it would wait for the other, too. In a pipeline that may be a later
// microbatch.
bool Rules::delaysCollective(unsigned first, unsigned other,
                             ArrayRef<unsigned> collectives) const {
  const unsigned *from = llvm::upper_bound(collectives,
                                           graph.group(first).members.back()),
                 *to = llvm::lower_bound(collectives,
                                         graph.group(other).members.front());
  if (from >= to)
    return false;
  llvm::BitVector reached = graph.reachableFrom(first);
  return std::any_of(from, to,
                     [&](unsigned node) { return reached.test(node); });
}

// Column reductions of one shape that read a large tensor in common.
void Rules::shareColumns() {
  llvm::MapVector<Value, SmallVector<unsigned>> readers;
  for (unsigned id : graph.liveGroups())
    if (graph.group(id).kind == ClusterKind::column)
      for (Value input : graph.inputs(id))
        if (tensorType(input).getNumElements() >=
            graph.group(id).kept * graph.group(id).reduced)
          readers[input].push_back(graph.group(id).members.front());
  SmallVector<unsigned> collectives;
  for (unsigned node = 0; node < graph.size(); ++node)
    if (hasCollective(graph.op(node)))
      collectives.push_back(node);
  for (auto &[input, nodes] : readers)
    for (unsigned node : llvm::drop_begin(nodes)) {
      unsigned first = graph.groupOf(nodes.front());
      unsigned other = graph.groupOf(node);
      FusionGroup &mine = graph.group(first), &theirs = graph.group(other);
      if (other == first || mine.kept != theirs.kept ||
          mine.reduced != theirs.reduced ||
          graph.countOperands(first, other) > kMaxOperands ||
          graph.wouldCycle(first, other) ||
          delaysCollective(first, other, collectives))
        continue;
      graph.merge(first, other, ClusterKind::column);
    }
}

//===--- all rules --------------------------------------------------------===//

void Rules::run() {
  auto forEach = [&](llvm::function_ref<bool(unsigned)> which,
                     void (Rules::*grow)(unsigned)) {
    for (unsigned node = 0; node < graph.size(); ++node)
      if (which(node))
        (this->*grow)(node);
  };
  auto isReduction = [&](unsigned node) {
    return isKind(node, ClusterKind::column) ||
           isKind(node, ClusterKind::reduce_all);
  };
  forEach([&](unsigned node) { return isProduct(graph.op(node)); },
          &Rules::absorbEpilogue);
  forEach([&](unsigned node) { return isa<AttentionGradOp>(graph.op(node)); },
          &Rules::growAttentionGrad);
  forEach(
      [&](unsigned node) {
        return isa<ReduceOp>(graph.op(node)) && isKind(node, ClusterKind::row);
      },
      &Rules::growRow);
  forEach(
      [&](unsigned node) {
        return isElementwise(graph.group(graph.groupOf(node)));
      },
      &Rules::growElementwise);
  forEach(
      [&](unsigned node) {
        return (isReduction(node) && isa<ReduceOp>(graph.op(node))) ||
               isa<RowScatter>(graph.op(node));
      },
      &Rules::growReduction);
  forEach(
      [&](unsigned node) {
        return (isReduction(node) && isa<ReduceOp>(graph.op(node))) ||
               isProduct(graph.op(node));
      },
      &Rules::repeatProducers);
  shareColumns();
}

void tessera::applyFusionRules(FusionGraph &graph) { Rules(graph).run(); }
