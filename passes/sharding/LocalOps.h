// What an op becomes on one device: itself on shares, or itself and what makes
// up for what the share does not have.
#pragma once
#include "dialects/graph/Build.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "mlir/IR/IRMapping.h"
#include "passes/sharding/PlacementReader.h"

namespace tessera::sharding {

/// What one device has of every value, as attributes say.
class Shares {
public:
  Shares(const Mesh &mesh, const Coordinates &at) : reader(mesh), at(at) {}

  const Placement &placementOf(mlir::Value value) const {
    return reader.of(value);
  }
  mlir::RankedTensorType typeOf(mlir::Value value) const;
  /// The op on shares: the same, with its results as large as these are.
  mlir::Operation *clone(mlir::Operation *op, mlir::OpBuilder &builder,
                         mlir::IRMapping &map) const;

private:
  PlacementReader reader;
  Coordinates at;
  mutable llvm::DenseMap<std::pair<const Placement *, mlir::Type>,
                         mlir::RankedTensorType>
      types;
  /// Attributes of ops without their shardings.
  mutable llvm::DenseMap<mlir::DictionaryAttr, mlir::DictionaryAttr> stripped;
};

/// How rows go from the devices of their tokens to those of their groups.
struct RowExchange {
  mlir::Value counts, countsBack; ///< of dist.exchange_rows, there and back
  mlir::Value groups;             ///< offsets of this device's groups
  mlir::Value slots;              ///< [rows, 1]: where each row that comes goes
};
/// Of rows in the order of some groups, in a block.
using RowExchanges =
    llvm::DenseMap<std::pair<mlir::Value, mlir::Block *>, RowExchange>;

struct LocalOp {
  mlir::Operation *op;      ///< on whole tensors
  mlir::OpBuilder &builder; ///< where its share is computed
  mlir::IRMapping &map;     ///< from whole values to shares
  const Mesh &mesh;
  const Coordinates &at;
  const Shares &shares;
  RowExchanges &exchanges; ///< of the whole program

  const Placement &placementOf(mlir::Value value) const {
    return shares.placementOf(value);
  }
  mlir::RankedTensorType localType(mlir::Value value) const {
    return shares.typeOf(value);
  }
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

/// The axes along which rows leave the devices of their tokens, `home`, and are
/// with their groups as `sent`.
llvm::SmallVector<unsigned, 2> exchangedAxes(const Placement &home,
                                             const Placement &sent);
/// Rows to their groups and back; nothing where no axis says so. Fails, with an
/// error at the op, where shares leave no room for all rows.
mlir::LogicalResult emitLocalSend(LocalOp &local, graph::SendRowsOp op);
mlir::LogicalResult emitLocalReturn(LocalOp &local, graph::ReturnRowsOp op);

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
