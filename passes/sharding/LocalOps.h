// What an op becomes on one device: itself on shares, or itself and what makes
// up for what the share does not have.
#pragma once
#include "dialects/graph/Build.h"
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

/// The head and its loss where the vocabulary is cut: false where it is not,
/// and the op stays what it is.
mlir::FailureOr<bool> emitLocalHead(LocalOp &local);

/// Attention where tokens are cut, rope whose positions follow from them, and
/// iota along a dimension that is cut: false where they are not, and the op
/// stays what it is.
mlir::FailureOr<bool> emitLocalAttention(LocalOp &local);
mlir::FailureOr<bool> emitLocalRope(LocalOp &local);
mlir::FailureOr<bool> emitLocalIota(LocalOp &local);

/// The one factor of a table's rows that is cut, if any is; failure after an
/// error where several factors make up the rows.
mlir::FailureOr<std::optional<Factor>> cutRows(LocalOp &local,
                                               mlir::Value table);

/// Row numbers of a whole table as those of a share.
struct OwnRows {
  OwnRows(graph::Emitter &emit, mlir::Value ids, mlir::Value offset,
          int64_t rows);
  /// `rows` [shape of ids, width] with zeros for rows that are elsewhere.
  mlir::Value masked(graph::Emitter &emit, mlir::Value rows) const;
  mlir::Value mask;    ///< which are in the share, i1
  mlir::Value numbers; ///< in the share; 0 for the others
};

/// A splat of another shape.
mlir::ElementsAttr resizeSplat(mlir::ElementsAttr splat,
                               mlir::RankedTensorType type);

} // namespace tessera::sharding
