// Two questions of the fusion rules about bytes: what may follow a contraction
// as its epilogue, and what is better recomputed than stored.
#pragma once
#include "passes/fusion/FusionGraph.h"

namespace tessera {

/// The members of a group and the nodes that it feeds, searched as far as they
/// are asked for: most questions are about nodes nearby, and a program has
/// thousands. Before groups repeat ops, when every edge leads to a later node.
class Fed {
public:
  Fed(const FusionGraph &graph, unsigned id);
  bool contains(unsigned node);

private:
  const FusionGraph &graph;
  unsigned next; ///< the first that has not been looked at
  llvm::BitVector found;
};

/// The epilogue of a contraction, or of a reduction of columns: what may run on
/// its accumulators.
class Epilogue {
public:
  Epilogue(FusionGraph &graph, unsigned id)
      : graph(graph), id(id), fed(graph, id) {}

  /// Whether an elementwise op costs no traffic there: it replaces what it
  /// reads, or is stored in any case.
  bool takes(unsigned node);
  /// Whether the elementwise group also adds a later sum of columns.
  bool waitsForColumns(const FusionGroup &group) const;

private:
  bool follows(unsigned node, unsigned depth);
  bool mustBeStored(unsigned node, unsigned depth);
  bool waitsForProduct(unsigned node) const;
  bool waitsForPermute(unsigned node) const;
  bool runsBackward(unsigned node) const;

  static constexpr unsigned kDepth = 12; ///< of chains that are looked through
  FusionGraph &graph;
  unsigned id;
  Fed fed;
};

/// Values that a group reads from others and could recompute, back to tensors
/// that are stored in any case.
class Cone {
public:
  Cone(FusionGraph &graph, unsigned id);
  /// Whether recomputing it moves no more bytes than storing and reading what
  /// the group reads now.
  bool isWorthwhile() const;

  llvm::SmallSetVector<unsigned, 8> nodes;

private:
  bool isStored(unsigned producer) const;
  int64_t bytesRead() const;

  FusionGraph &graph;
  unsigned id;
  int64_t elements;
  int64_t saved = 0, cost = 0;
  llvm::DenseSet<unsigned> operands; ///< of a contraction: whole tensors
};

} // namespace tessera
