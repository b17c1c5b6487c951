// The order in which the collectives of a block start, and which are merged.
#pragma once
#include "mlir/IR/Block.h"
#include "mlir/Support/LogicalResult.h"
#include "llvm/ADT/ArrayRef.h"

namespace tessera::overlap {

/// `blocks` is the same block in the program of each group of devices. Sets
/// dist.start on its collectives and on loops that contain some, by the costs
/// of the first and the dependences of all. An error if their collectives
/// differ.
mlir::LogicalResult decideStarts(llvm::ArrayRef<mlir::Block *> blocks);

} // namespace tessera::overlap
