#include "passes/fusion/FusionRules.h"
#include "passes/fusion/FusionChoices.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// More tensors than this in one kernel: more streams than a core prefetches,
// and unreadable dumps.
static constexpr unsigned kMaxOperands = 24;

namespace {

class Rules {
public:
  explicit Rules(FusionGraph &graph) : graph(graph) {}
  void run();

private:
  // The kind of a merge of producer `p` into or with consumer `q`, by the kinds
  // of both; none if they do not fit.
  std::optional<ClusterKind> fit(unsigned p, unsigned q);
  std::optional<ClusterKind> intoElementwise(unsigned p, unsigned q);
  std::optional<ClusterKind> intoRow(unsigned p, unsigned q);
  std::optional<ClusterKind> intoScatter(unsigned p, unsigned q);
  // Whether parts of its tensors come from different positions.
  bool isJoined(const FusionGroup &group) const {
    return llvm::any_of(group.members, [&](unsigned node) {
      return isa<ConcatOp, PadOp>(graph.op(node));
    });
  }
  bool areScalarsOfTwoLayers(unsigned p, unsigned q);
  bool addsTwoMicrobatches(unsigned p, unsigned q);
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
};

} // namespace

static bool isElementwise(const FusionGroup &group) {
  return group.kind == ClusterKind::elementwise ||
         group.kind == ClusterKind::gather;
}

//===--- fitting ----------------------------------------------------------===//

// An elementwise group absorbs another of as many elements; if the order or the
// number of elements changes in between, only if it has no other reader.
std::optional<ClusterKind> Rules::intoElementwise(unsigned p, unsigned q) {
  FusionGroup &from = graph.group(p), &into = graph.group(q);
  FusionEdge edge = graph.edgeBetween(p, q);
  if (edge.repeats)
    return {};
  bool alike = from.kept == into.kept && edge.inOrder;
  if (!alike && !graph.feedsOnly(p, q))
    return {};
  return from.kind == ClusterKind::gather ? ClusterKind::gather : *into.kind;
}

// Into a row group, or a row group into what follows: each tensor has an
// element a row, or one for each element of the rows.
std::optional<ClusterKind> Rules::intoRow(unsigned p, unsigned q) {
  FusionGroup &from = graph.group(p), &into = graph.group(q);
  FusionGroup &row = from.kind == ClusterKind::row ? from : into;
  auto fits = [&](const FusionGroup &group) {
    if (group.reduced)
      return group.kept == row.kept && group.reduced == row.reduced;
    return group.kept == row.kept || group.kept == row.kept * row.reduced;
  };
  // Rows made of pieces would be walked piece by piece.
  if (!fits(from) || !fits(into) || isJoined(from) || isJoined(into))
    return {};
  FusionEdge edge = graph.edgeBetween(p, q);
  if (edge.inOrder ||
      (edge.repeats && edge.repeatsLast && from.kept == row.kept))
    return ClusterKind::row;
  if (isElementwise(from) && !edge.repeats && graph.feedsOnly(p, q))
    return ClusterKind::row;
  return {};
}

// A scatter computes its updates where it adds them, all in one piece.
std::optional<ClusterKind> Rules::intoScatter(unsigned p, unsigned q) {
  FusionGroup &from = graph.group(p), &into = graph.group(q);
  for (unsigned node : into.members)
    if (auto scatter = dyn_cast<RowScatter>(graph.op(node)))
      for (unsigned producer : graph.producersOf(scatter.getUpdates()))
        if (graph.groupOf(producer) == p && isElementwise(from) &&
            from.kept == tensorType(scatter.getUpdates()).getNumElements() &&
            from.kind == ClusterKind::elementwise && !isJoined(from) &&
            graph.feedsOnly(p, q) &&
            !llvm::is_contained(graph.producersOf(scatter.getBase()),
                                producer) &&
            !llvm::is_contained(graph.producersOf(scatter.getIds()), producer))
          return ClusterKind::scatter;
  return {};
}

std::optional<ClusterKind> Rules::fit(unsigned p, unsigned q) {
  FusionGroup &from = graph.group(p), &into = graph.group(q);
  if (!from.kind || !into.kind)
    return {};
  // Rows are gathered from whole tables by finished indices.
  for (unsigned node : into.members)
    if (isa<EmbeddingOp>(graph.op(node)) &&
        llvm::any_of(graph.producers(node), [&](unsigned producer) {
          return graph.groupOf(producer) == p;
        }))
      return {};
  switch (*into.kind) {
  case ClusterKind::elementwise:
  case ClusterKind::gather:
    switch (*from.kind) {
    case ClusterKind::elementwise:
    case ClusterKind::gather:
      return intoElementwise(p, q);
    case ClusterKind::row:
      return intoRow(p, q);
    case ClusterKind::contraction:
    case ClusterKind::grouped:
    case ClusterKind::column:
      if (into.kind == ClusterKind::elementwise && from.kept == into.kept &&
          graph.edgeBetween(p, q).inOrder)
        return from.kind;
      return {};
    default:
      return {};
    }
  case ClusterKind::row:
    if (isElementwise(from) || from.kind == ClusterKind::row)
      return intoRow(p, q);
    return {};
  case ClusterKind::column:
  case ClusterKind::reduce_all:
    if (from.kind == ClusterKind::elementwise &&
        from.kept == into.kept * into.reduced && graph.feedsOnly(p, q) &&
        !graph.edgeBetween(p, q).repeats)
      return into.kind;
    return {};
  case ClusterKind::scatter:
    return intoScatter(p, q);
  default:
    return {};
  }
}

// Chains of scalars through all layers, such as the sum of a norm: where they
// are cut must not depend on the number of layers.
bool Rules::areScalarsOfTwoLayers(unsigned p, unsigned q) {
  const FusionGroup &one = graph.group(p), &other = graph.group(q);
  return one.kept == 1 && other.kept == 1 && one.reduced == 0 &&
         other.reduced == 0 && one.layer && other.layer &&
         one.layer.getIndex() != other.layer.getIndex();
}

// The terms of all microbatches would be kept for one kernel.
bool Rules::addsTwoMicrobatches(unsigned p, unsigned q) {
  return graph.group(p).addsMicrobatch && graph.group(q).addsMicrobatch;
}

bool Rules::tryMerge(unsigned p, unsigned q) {
  if (p == q)
    return false;
  std::optional<ClusterKind> kind = fit(p, q);
  if (!kind || areScalarsOfTwoLayers(p, q) || addsTwoMicrobatches(p, q) ||
      graph.countOperands(p, q) > kMaxOperands || graph.wouldCycle(p, q))
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
