// Which gathers and scatters can be done in parts beside the products that read
// what comes, or make what goes: as CollectiveMatmul marks them and
// LocalProducts emits them.
#pragma once
#include "dialects/graph/Einsum.h"
#include "dialects/graph/GraphOps.h"
#include "passes/sharding/PlacementReader.h"

namespace tessera::sharding {

/// A gather over one axis of what products read, or a scatter over it of what
/// one product makes.
struct PartedReshard {
  bool gathers = false;
  unsigned axis = 0;   ///< of the mesh
  int64_t devices = 0; ///< along it
  int64_t dim = 0;     ///< of the tensor: gathered or scattered
};

/// What the reshard can be done as; nothing if it cannot. Then `why` says what
/// keeps a gather or a scatter whole, and is left as it is for other reshards.
std::optional<PartedReshard> partedReshard(dist::ReshardOp op,
                                           const PlacementReader &reader,
                                           std::string &why);

/// Whether the op computes element by element, and what it reads beside values
/// in parts along `dim` is the same in all parts.
bool staysInParts(mlir::Operation *op, int64_t dim,
                  llvm::function_ref<bool(mlir::Value)> isInParts);

/// The loops of a product; its equation was verified.
graph::Einsum einsumOf(graph::EinsumOp op);

} // namespace tessera::sharding
