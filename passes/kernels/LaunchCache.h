// Launches of equal clusters, which are copies of those of the first one.
#pragma once
#include "passes/fusion/SameCluster.h"
#include "llvm/ADT/DenseMap.h"
#include <optional>

namespace tessera {

class LaunchCache {
public:
  LaunchCache() = default;
  LaunchCache(const LaunchCache &) = delete;
  ~LaunchCache();

  /// Copies the launches of an equal cluster before this one and returns the
  /// values of its results; none if there is no such cluster.
  std::optional<llvm::SmallVector<mlir::Value>>
  repeat(graph::ClusterOp cluster) const;

  /// Takes a cluster without uses from its block. Remembers the ops between
  /// `before` (null: the block's begin) and it as its launches, if they depend
  /// on nothing else.
  void take(graph::ClusterOp cluster, mlir::Operation *before,
            llvm::ArrayRef<mlir::Value> results);

private:
  /// Values are numbered: the inputs of the cluster, then results of `ops`.
  struct Launches {
    llvm::SmallVector<mlir::Operation *> ops;
    llvm::SmallVector<unsigned> operands; ///< of all ops, one after the other
    llvm::SmallVector<unsigned> results;
  };
  static std::optional<Launches> describe(graph::ClusterOp cluster,
                                          mlir::Operation *before,
                                          llvm::ArrayRef<mlir::Value> results);

  llvm::DenseMap<mlir::Operation *, Launches, SameCluster> known;
};

} // namespace tessera
