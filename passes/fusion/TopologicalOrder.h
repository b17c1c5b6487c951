// The order of ops in a block, once clusters or launches took the place of ops
// from different positions.
#pragma once
#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

namespace tessera {

/// Where each op would stand if nothing held it back.
using OpPositions = llvm::DenseMap<mlir::Operation *, unsigned>;

/// The positions of a block's ops as they are.
OpPositions positionsOf(mlir::Block &block);

/// A collective, or the wait for one that was started. Ranks whose shares
/// differ in size have programs of their own, compiled apart, and yet all of
/// them must do the same together in the same order: so these stay in the order
/// in which partitioning made them, here and wherever ops are merged.
bool isCollective(mlir::Operation *op);
/// Whether the op is one, or holds one.
bool hasCollective(mlir::Operation *op);

/// Reorders the block so that operands come first: always the op with the
/// smallest place among those that are ready. What was in order stays in order;
/// an op that waited runs as soon as it can, so that tensors die early.
/// Collectives keep their order. Every op needs a place.
void orderByPosition(mlir::Block &block, const OpPositions &positions);

} // namespace tessera
