// The order of ops in a block, once clusters or launches took the place of ops
// from different places.
#pragma once
#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

namespace tessera {

/// Where each op would stand if nothing held it back.
using OpPlaces = llvm::DenseMap<mlir::Operation *, unsigned>;

/// The places of a block's ops as they are.
OpPlaces placesOf(mlir::Block &block);

/// Reorders the block so that operands come first: always the op with the
/// smallest place among those that are ready. What was in order stays in order;
/// an op that waited runs as soon as it can, so that tensors die early. Every
/// op needs a place.
void orderByPlace(mlir::Block &block, const OpPlaces &places);

} // namespace tessera
