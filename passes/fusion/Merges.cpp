#include "passes/fusion/Merges.h"
#include "passes/fusion/FusionRules.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// An elementwise group absorbs another of as many elements; if the order or the
// number of elements changes in between, only if it has no other reader.
std::optional<ClusterKind> Merges::intoElementwise(unsigned p,
                                                   unsigned q) const {
  const FusionGroup &from = graph.group(p), &into = graph.group(q);
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
std::optional<ClusterKind> Merges::intoRow(unsigned p, unsigned q) const {
  const FusionGroup &from = graph.group(p), &into = graph.group(q);
  const FusionGroup &row = from.kind == ClusterKind::row ? from : into;
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
std::optional<ClusterKind> Merges::intoScatter(unsigned p, unsigned q) const {
  const FusionGroup &from = graph.group(p), &into = graph.group(q);
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

// Rows are gathered from whole tables by finished indices.
bool Merges::readsFinished(unsigned p, const FusionGroup &into) const {
  return llvm::any_of(into.members, [&](unsigned node) {
    return isa<EmbeddingOp>(graph.op(node)) &&
           llvm::any_of(graph.producers(node), [&](unsigned producer) {
             return graph.groupOf(producer) == p;
           });
  });
}

// Rows of quantized tables have a kernel of their own.
bool Merges::isAlone(const FusionGroup &group) const {
  return group.kind == ClusterKind::gather && group.members.size() == 1 &&
         readsQuantizedTable(graph.op(group.members.front()));
}

std::optional<ClusterKind> Merges::kindOf(unsigned p, unsigned q) const {
  const FusionGroup &from = graph.group(p), &into = graph.group(q);
  if (!from.kind || !into.kind || isAlone(from) || isAlone(into))
    return {};
  if (readsFinished(p, into))
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
bool Merges::areScalarsOfTwoLayers(unsigned p, unsigned q) const {
  const FusionGroup &one = graph.group(p), &other = graph.group(q);
  return one.kept == 1 && other.kept == 1 && one.reduced == 0 &&
         other.reduced == 0 && one.layer && other.layer &&
         one.layer.getIndex() != other.layer.getIndex();
}

// The terms of all microbatches would be kept for one kernel.
bool Merges::addsTwoMicrobatches(unsigned p, unsigned q) const {
  return graph.group(p).addsMicrobatch && graph.group(q).addsMicrobatch;
}

// What several layers read and none computes, such as positions in documents:
// with an op of each layer its kernel would be one of all layers.
bool Merges::feedsOtherLayers(unsigned p, unsigned q) const {
  const FusionGroup &from = graph.group(p), &into = graph.group(q);
  if (from.layer || !into.layer)
    return false;
  return llvm::any_of(from.members, [&](unsigned member) {
    return llvm::any_of(graph.users(member), [&](unsigned user) {
      LayerAttr reader = graph.group(graph.groupOf(user)).layer;
      return reader && reader.getIndex() != into.layer.getIndex();
    });
  });
}

const char *Merges::obstacle(unsigned p, unsigned q) const {
  if (areScalarsOfTwoLayers(p, q))
    return "they are scalars of two layers";
  if (addsTwoMicrobatches(p, q))
    return "they add terms of two microbatches";
  if (feedsOtherLayers(p, q))
    return "other layers read it too";
  if (graph.countOperands(p, q) > kMaxOperands)
    return "one kernel would have too many tensors";
  if (graph.wouldCycle(p, q))
    return "a third kernel reads the one and is read by the other";
  return nullptr;
}

// Whether no kernel computes both, whatever the shapes.
static bool areNeverOne(const FusionGroup &from, const FusionGroup &into) {
  switch (*into.kind) {
  case ClusterKind::elementwise:
    return !isElementwise(from) && from.kind != ClusterKind::row &&
           from.kind != ClusterKind::contraction &&
           from.kind != ClusterKind::grouped &&
           from.kind != ClusterKind::column;
  case ClusterKind::gather:
  case ClusterKind::row:
    return !isElementwise(from) && from.kind != ClusterKind::row;
  case ClusterKind::column:
  case ClusterKind::reduce_all:
  case ClusterKind::scatter:
    return from.kind != ClusterKind::elementwise;
  default:
    return true;
  }
}

std::string Merges::whyStored(unsigned p, unsigned q) const {
  const FusionGroup &from = graph.group(p), &into = graph.group(q);
  std::string reason = "no kernel computes both";
  if (kindOf(p, q)) {
    const char *found = obstacle(p, q);
    reason = found ? found : "no rule merges them";
  } else if (readsFinished(p, into)) {
    reason = "rows are gathered from whole tables by finished indices";
  } else if (isAlone(from) || isAlone(into)) {
    reason = "rows of quantized tables have a kernel of their own";
  } else if (into.kind == ClusterKind::row &&
             (isJoined(from) || isJoined(into))) {
    reason = "a row would be made of pieces";
  } else if (!areNeverOne(from, into)) {
    reason = "they differ in the number or the order of elements";
    if (!graph.feedsOnly(p, q))
      reason += ", or another kernel reads it too";
  }
  return (stringifyClusterKind(*from.kind) + " and " +
          stringifyClusterKind(*into.kind) + ": " + reason)
      .str();
}

void tessera::explainStores(FusionGraph &graph) {
  const Merges merges(graph);
  for (unsigned node = 0; node < graph.size(); ++node) {
    unsigned from = graph.groupOf(node);
    llvm::SmallDenseSet<unsigned> explained;
    for (unsigned user : graph.users(node)) {
      unsigned to = graph.groupOf(user);
      if (to != from && graph.group(from).kind && graph.group(to).kind &&
          explained.insert(to).second)
        graph.op(node)->emitRemark()
            << "stored for '" << graph.op(user)->getName() << "', "
            << merges.whyStored(from, to);
    }
  }
}
