// The ops of one block and the groups of a fusion.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "passes/fusion/GroupOrder.h"
#include "passes/fusion/SameCluster.h"
#include "passes/fusion/TopologicalOrder.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include <vector>

namespace tessera {

/// Whether fusion repeats the op at each use instead of storing its result:
/// views, splat constants, iota, random numbers, upcasts.
bool isFree(mlir::Operation *op);
/// Views that keep the row-major order of elements, and free conversions.
bool keepsOrder(mlir::Operation *op);

/// Matmuls, whose sums a kernel holds in accumulators: elementwise ops that
/// follow are computed there.
inline bool isProduct(mlir::Operation *op) {
  return mlir::isa<graph::EinsumOp, graph::GroupedMatmulOp,
                   graph::GroupedOuterOp>(op);
}

/// Whether the op gathers rows of a table in the layout of quantized weights,
/// or the cluster has such an op, which is then its only one: a kernel reads
/// them as they are stored.
bool readsQuantizedTable(mlir::Operation *op);

/// Whether planning has an address for the slice's result: one run of its
/// input's memory that starts where a buffer may, at a multiple of 64 bytes.
bool hasAddress(graph::SliceOp slice);
/// Whether kernels read the slice through its address, so that those of other
/// slices are the same: one element, or a row of a table that a program is
/// given.
bool isReadInMemory(graph::SliceOp slice);

/// Whether planning makes the table: its rows are written where they are made,
/// and no kernel has to know all of them. So layers stay alike that have a row
/// of one table each.
bool isStack(graph::ConcatOp concat);

/// Ops that will become one kernel. An op that no cluster may hold (a loop, a
/// return) is in a group without a kind.
struct FusionGroup {
  std::optional<graph::ClusterKind> kind;
  llvm::SmallVector<unsigned> members; ///< node numbers, increasing
  /// Elements of the results; with reductions of the kept part.
  int64_t kept = 0;
  /// Elements of each reduction, 0 without: members have kept or kept ×
  /// reduced elements.
  int64_t reduced = 0;
  graph::LayerAttr layer;      ///< of the first member that has one, or null
  bool addsMicrobatch = false; ///< to a large sum of all microbatches
  /// Ops of other groups that this one recomputes.
  llvm::DenseSet<mlir::Operation *> repeats;
};

/// How a producer's result reaches a user.
struct FusionEdge {
  bool inOrder; ///< only through views that keep the order of elements
  bool repeats; ///< through a broadcast
  /// Where it repeats: along the last dimensions only, as a row's statistic
  /// does.
  bool repeatsLast = true;
};

/// Nodes are the block's ops except free ones, in program order; edges look
/// through free ops.
class FusionGraph {
public:
  explicit FusionGraph(mlir::Block &block);

  unsigned size() const { return nodes.size(); }
  mlir::Operation *op(unsigned node) const { return nodes[node]; }
  llvm::ArrayRef<unsigned> users(unsigned node) const { return succs[node]; }
  llvm::ArrayRef<unsigned> producers(unsigned node) const {
    return preds[node];
  }
  unsigned groupOf(unsigned node) const { return groupIds[node]; }
  FusionGroup &group(unsigned id) { return groups[id]; }
  const FusionGroup &group(unsigned id) const { return groups[id]; }
  /// Numbers of the groups that are left.
  llvm::SmallVector<unsigned> liveGroups() const;

  /// Moves the members of `other` into `id`, which becomes one of `kind`.
  void merge(unsigned id, unsigned other, graph::ClusterKind kind);
  /// Makes each member a separate group again; returns their numbers.
  llvm::SmallVector<unsigned> dissolve(unsigned id);
  /// Whether merging would make a cycle: a path from one to the other through
  /// a third.
  bool wouldCycle(unsigned a, unsigned b) const;
  /// The nodes that depend on the group.
  llvm::BitVector reachableFrom(unsigned id) const;
  /// Whether every use of every result of the group is in `other`.
  bool feedsOnly(unsigned id, unsigned other) const;
  /// All edges from one group into another, joined: in order if all are,
  /// repeating if one is.
  FusionEdge edgeBetween(unsigned from, unsigned to) const;
  /// Whether a result of the node is stored: used outside of its group other
  /// than by `except`.
  bool isStored(unsigned node, unsigned except) const;
  /// Group `id` recomputes `cone` (node numbers); it then reads the inputs of
  /// these nodes and not their results.
  void repeat(unsigned id, llvm::ArrayRef<unsigned> cone);
  /// The tensors that a group reads from outside, through free and repeated
  /// ops.
  llvm::SmallSetVector<mlir::Value, 8> inputs(unsigned id) const;
  /// The nodes that `value` is computed from, through free ops.
  llvm::SmallVector<unsigned> producersOf(mlir::Value value) const;
  /// Whether a group other than `id` reads `value`, a result of `id`.
  bool isRead(mlir::Value value, unsigned id) const;
  /// The node that `value` is a result of, if it is one of this block's.
  std::optional<unsigned> nodeOf(mlir::Value value) const;
  /// Distinct tensors that the members of both read from outside and pass to
  /// others.
  unsigned countOperands(unsigned a, unsigned b) const;

private:
  void addEdges(mlir::Value value, unsigned user, FusionEdge edge);
  void connect(unsigned producer, unsigned user, FusionEdge edge);
  FusionGroup single(unsigned node) const;
  bool pathOutside(unsigned from, unsigned to) const;

  std::vector<mlir::Operation *> nodes;
  llvm::DenseMap<mlir::Operation *, unsigned> numbers;
  std::vector<llvm::SmallVector<unsigned>> succs, preds;
  llvm::DenseMap<std::pair<unsigned, unsigned>, FusionEdge> edges;
  std::vector<unsigned> groupIds;
  std::vector<FusionGroup> groups;
  GroupOrder order;
  /// For each op that groups repeat, which ones.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<unsigned, 2>> repeaters;
};

/// Clusters that kernels can compute. Copies of a block have equal ones, of
/// which one is checked.
using ComputableClusters = llvm::DenseSet<mlir::Operation *, SameCluster>;

/// Makes a cluster of the group's ops, free ones and repeated ones, and
/// replaces their results where they are used elsewhere; none if all of them
/// are unused. Fails if the ops give no computable expression: then nothing
/// changed. The ops themselves stay, without uses; the cluster may be after its
/// users until the block is sorted. `positions` gains the cluster's: that of
/// its first op.
mlir::LogicalResult buildCluster(FusionGraph &graph, unsigned id,
                                 OpPositions &positions,
                                 ComputableClusters &computable);
/// The same for a free op whose result must be stored.
void buildCluster(mlir::Operation *op, OpPositions &positions,
                  ComputableClusters &computable);

} // namespace tessera
