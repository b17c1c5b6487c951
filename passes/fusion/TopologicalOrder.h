// The order of ops in a block after clusters or launches replaced ops from
// different positions.
#pragma once
#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"

namespace tessera {

/// The position that each op would have without dependences.
using OpPositions = llvm::DenseMap<mlir::Operation *, unsigned>;

/// The positions of a block's ops as they are.
OpPositions positionsOf(mlir::Block &block);

/// A collective, or the wait for one that was started. Ranks whose shards
/// differ in size have programs of their own, compiled separately, and yet all
/// of them must run the same collectives in the same order. So these keep the
/// order in which partitioning made them, here and wherever ops are merged.
bool isCollective(mlir::Operation *op);
/// Whether the op is one, or holds one.
bool hasCollective(mlir::Operation *op);

/// The ops of its block that `op`, regions included, reads results of.
llvm::SmallSetVector<mlir::Operation *, 8> producersOf(mlir::Operation *op);

/// Reorders the block so that operands come first: always the ready op with the
/// smallest position. Ops that were in order stay in order; an op that waited
/// runs as soon as it can, so that tensors die early. Collectives keep their
/// order. Every op must have a position.
void orderByPosition(mlir::Block &block, const OpPositions &positions);

} // namespace tessera
