// Equality of clusters. Copies of a block, such as those of a pipeline's
// microbatches, have equal ones: what is found out about one holds for all.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "llvm/ADT/DenseMapInfo.h"

namespace tessera {

/// Clusters with equal bodies, types and attributes, wherever they are and of
/// whichever layer. Keys must stay as they are while they are in a map.
struct SameCluster : llvm::DenseMapInfo<mlir::Operation *> {
  static unsigned getHashValue(const mlir::Operation *cluster);
  static bool isEqual(const mlir::Operation *a, const mlir::Operation *b);
};

} // namespace tessera
