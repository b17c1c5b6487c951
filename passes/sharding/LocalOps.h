// What an op becomes on one device: itself on shares, or itself and what makes
// up for what the share does not have.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "mlir/IR/IRMapping.h"
#include "passes/sharding/Placement.h"
#include <functional>

namespace tessera::sharding {

struct LocalOp {
  mlir::Operation *op;      ///< on whole tensors
  mlir::OpBuilder &builder; ///< where its share is computed
  mlir::IRMapping &map;     ///< from whole values to shares
  const Mesh &mesh;
  const Coordinates &at;
  std::function<Placement(mlir::Value)> placementOf;

  mlir::RankedTensorType localType(mlir::Value value) const;
};

/// Emits the op on shares and maps its results.
mlir::LogicalResult emitLocal(LocalOp &local);

/// A splat of another shape.
mlir::ElementsAttr resizeSplat(mlir::ElementsAttr splat,
                               mlir::RankedTensorType type);

} // namespace tessera::sharding
