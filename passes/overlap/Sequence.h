// The order of starts, from dist.start.
#pragma once
#include "mlir/Support/LogicalResult.h"
#include "passes/overlap/BlockGraph.h"

namespace tessera::overlap {

/// The items of the block ordered by dist.start. An error if one has none or
/// two have the same.
mlir::FailureOr<llvm::SmallVector<unsigned>>
sequenceOf(const BlockGraph &graph);

/// The ops that compute, in program order.
llvm::SmallVector<unsigned> computing(const BlockGraph &graph);

/// Emits the error that the block cannot be reordered to this sequence.
mlir::LogicalResult contradiction(const BlockGraph &graph,
                                  llvm::ArrayRef<unsigned> sequence);

} // namespace tessera::overlap
