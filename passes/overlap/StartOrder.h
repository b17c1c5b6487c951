// In which order the collectives of a block start, and which travel together.
#pragma once
#include "mlir/IR/Block.h"
#include "mlir/Support/LogicalResult.h"
#include "llvm/ADT/ArrayRef.h"

namespace tessera::schedule {

/// `blocks` is the same block in the program of each group of devices. Sets
/// dist.start on its collectives and on loops that hold some; decided by the
/// first of them within what all of them allow. An error where they do not hold
/// the same collectives.
mlir::LogicalResult decideStarts(llvm::ArrayRef<mlir::Block *> blocks);

} // namespace tessera::schedule
