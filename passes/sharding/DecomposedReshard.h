// Which all-gathers and reduce-scatters can be decomposed so that they overlap
// with the matmuls that read or produce their chunks. CollectiveMatmul marks
// them, LocalCollectiveMatmul emits them.
#pragma once
#include "dialects/graph/Einsum.h"
#include "dialects/graph/GraphOps.h"
#include "passes/sharding/PlacementReader.h"

namespace tessera::sharding {

/// An all-gather over one axis that matmuls read, or a reduce-scatter over it
/// of a matmul's result.
struct DecomposedReshard {
  bool gathers = false;
  unsigned axis = 0;   ///< of the mesh
  int64_t devices = 0; ///< along it
  int64_t dim = 0;     ///< of the tensor: gathered or scattered
};

/// How the reshard can be decomposed; nothing if it cannot. Then `why` says
/// what prevents it for a gather or a scatter, and is unchanged for other
/// reshards.
std::optional<DecomposedReshard>
matchDecomposedReshard(dist::ReshardOp op, const PlacementReader &reader,
                       std::string &why);

/// Whether the op is elementwise, and all operands that are not chunked along
/// `dim` are the same for all chunks.
bool staysChunked(mlir::Operation *op, int64_t dim,
                  llvm::function_ref<bool(mlir::Value)> isInParts);

/// The loops of a matmul; its equation was verified.
graph::Einsum einsumOf(graph::EinsumOp op);

} // namespace tessera::sharding
