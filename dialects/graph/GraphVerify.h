// Checks that the verifiers of the graph ops share.
#pragma once
#include "dialects/graph/GraphOps.h"

namespace tessera::graph::detail {

/// Error unless `type`, called `what` in the message, has shape `shape`.
mlir::LogicalResult expectShape(mlir::Operation *op, llvm::StringRef what,
                                mlir::RankedTensorType type,
                                llvm::ArrayRef<int64_t> shape);

mlir::LogicalResult expectRank(mlir::Operation *op, llvm::StringRef what,
                               mlir::RankedTensorType type, int64_t rank);

/// Error unless both types have one element type.
mlir::LogicalResult expectSameElement(mlir::Operation *op,
                                      llvm::StringRef firstName,
                                      mlir::RankedTensorType first,
                                      llvm::StringRef secondName,
                                      mlir::RankedTensorType second);

/// Error unless `wide`'s float element type is `narrow`'s or a wider one.
mlir::LogicalResult expectSameOrWider(mlir::Operation *op,
                                      llvm::StringRef narrowName,
                                      mlir::RankedTensorType narrow,
                                      llvm::StringRef wideName,
                                      mlir::RankedTensorType wide);

/// Error unless `stream` fits 32 bits without a sign.
mlir::LogicalResult expectStream(mlir::Operation *op, int64_t stream);

} // namespace tessera::graph::detail
