// Which two groups of a fusion may be one kernel.
#pragma once
#include "passes/fusion/FusionGraph.h"
#include <string>

namespace tessera {

/// More tensors than this in one kernel: more streams than a core prefetches,
/// and unreadable dumps.
inline constexpr unsigned kMaxOperands = 24;

inline bool isElementwise(const FusionGroup &group) {
  return group.kind == graph::ClusterKind::elementwise ||
         group.kind == graph::ClusterKind::gather;
}

class Merges {
public:
  explicit Merges(const FusionGraph &graph) : graph(graph) {}

  /// The kind of a merge of producer `p` into or with consumer `q`, by the
  /// kinds of both; none if they do not fit.
  std::optional<graph::ClusterKind> kindOf(unsigned p, unsigned q) const;
  /// What forbids to merge two groups that fit; null if nothing does.
  const char *obstacle(unsigned p, unsigned q) const;
  /// Why group `p` stores what group `q` reads, after the rules.
  std::string whyStored(unsigned p, unsigned q) const;

private:
  std::optional<graph::ClusterKind> intoElementwise(unsigned p,
                                                    unsigned q) const;
  std::optional<graph::ClusterKind> intoRow(unsigned p, unsigned q) const;
  std::optional<graph::ClusterKind> intoScatter(unsigned p, unsigned q) const;
  bool readsFinished(unsigned p, const FusionGroup &into) const;
  bool isAlone(const FusionGroup &group) const;
  // Whether parts of its tensors come from different positions.
  bool isJoined(const FusionGroup &group) const {
    return llvm::any_of(group.members, [&](unsigned node) {
      return mlir::isa<graph::ConcatOp, graph::PadOp>(graph.op(node));
    });
  }
  bool areScalarsOfTwoLayers(unsigned p, unsigned q) const;
  bool addsTwoMicrobatches(unsigned p, unsigned q) const;
  bool feedsOtherLayers(unsigned p, unsigned q) const;

  const FusionGraph &graph;
};

} // namespace tessera
