// The order of starts that dist.start says.
#pragma once
#include "mlir/Support/LogicalResult.h"
#include "passes/overlap/BlockGraph.h"

namespace tessera::schedule {

/// The items of the block by dist.start. Fails where one has none, or two have
/// the same.
mlir::FailureOr<llvm::SmallVector<unsigned>>
sequenceOf(const BlockGraph &graph);

/// The ops that compute, in the order in which they stand.
llvm::SmallVector<unsigned> computing(const BlockGraph &graph);

/// An error: no order of the block has its collectives in this one.
mlir::LogicalResult contradiction(const BlockGraph &graph,
                                  llvm::ArrayRef<unsigned> sequence);

} // namespace tessera::schedule
