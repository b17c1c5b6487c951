// What an op becomes on one device: the same op on local shards, or several ops
// with the communication that they need.
#pragma once
#include "dialects/graph/Build.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "mlir/IR/IRMapping.h"
#include "passes/sharding/PlacementReader.h"

namespace tessera::sharding {

/// The local type and placement of every value, from attributes.
class Shares {
public:
  Shares(const Mesh &mesh, const Coordinates &at) : reader(mesh), at(at) {}

  const Placement &placementOf(mlir::Value value) const {
    return reader.of(value);
  }
  mlir::RankedTensorType typeOf(mlir::Value value) const;
  /// The same op on local shards, with local result types.
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

/// Adjacent rows of one group that one device sends to another, i32[devices ×
/// groups of a device].
struct RowPieces {
  mlir::Value counts;
  mlir::Value starts; ///< position among all rows of the device of the group
  mlir::Value firsts; ///< position on the device of the tokens
};

/// The pieces of one exchange as dist.exchange_rows has them, i32[devices ×
/// groups of a device].
struct RowMoves {
  mlir::Value sends, firsts;    ///< rows of the input that go to each device
  mlir::Value receives, begins; ///< rows of the result that come from each
};

/// How rows are sent from the devices of their tokens to those of their groups.
struct RowExchange {
  mlir::Value all;      ///< rows of each device, to each, of each of its groups
  mlir::Value totals;   ///< rows in all rounds that each device receives, or,
                        ///< if padded, each device of each
  RowPieces home, come; ///< of this device's tokens; for this device's groups
  mlir::Value ends;     ///< offsets of this device's groups among all its rows
  /// In one round: there and back, and the offsets of this device's groups.
  RowMoves there, back;
  mlir::Value groups;
};
/// By the order of groups that the rows have, and by block.
using RowExchanges =
    llvm::DenseMap<std::pair<mlir::Value, mlir::Block *>, RowExchange>;

/// A round after the first, inside its loop.
struct ExchangeRound {
  mlir::Value number; ///< i32[], from 1
  mlir::Block *outer; ///< of the first round
};

struct LocalOp {
  mlir::Operation *op;      ///< on whole tensors
  mlir::OpBuilder &builder; ///< inserts the local ops
  mlir::IRMapping &map;     ///< from whole values to local shards
  const Mesh &mesh;
  const Coordinates &at;
  const Shares &shares;
  RowExchanges &exchanges;              ///< of the whole program
  bool padsExchanges = false;           ///< PaddedExchange.h
  const ExchangeRound *round = nullptr; ///< of rows; null in the first

  const Placement &placementOf(mlir::Value value) const {
    return shares.placementOf(value);
  }
  mlir::RankedTensorType localType(mlir::Value value) const {
    return shares.typeOf(value);
  }
};

/// Emits the op on local shards and maps its results.
mlir::LogicalResult emitLocal(LocalOp &local);

/// The head and its loss over a sharded vocabulary. False if the vocabulary is
/// not sharded: then the op stays as it is.
mlir::FailureOr<bool> emitLocalHead(LocalOp &local);

/// Attention over sharded tokens, rope whose positions follow from them, and
/// iota along a sharded dimension. False if it is not sharded: then the op
/// stays as it is.
mlir::FailureOr<bool> emitLocalAttention(LocalOp &local);
mlir::FailureOr<bool> emitLocalRope(LocalOp &local);
mlir::FailureOr<bool> emitLocalIota(LocalOp &local);

/// The axes along which rows are exchanged: from the devices of their tokens
/// (`home`) to those of their groups (`sent`).
llvm::SmallVector<unsigned, 2> exchangedAxes(const Placement &home,
                                             const Placement &sent);
/// Rows that a device has room for if that is `buffer` times the mean number
/// that it receives of all `rows`; 0 if it receives no more in any case.
int64_t roomForRows(int64_t rows, double buffer, const Mesh &mesh,
                    const Placement &home, const Placement &sent);
/// Sends rows to the devices of their groups, and back; does nothing without
/// such an axis. An error at the op if shards have no room for all rows.
mlir::LogicalResult emitLocalSend(LocalOp &local, graph::SendRowsOp op);
mlir::LogicalResult emitLocalReturn(LocalOp &local, graph::ReturnRowsOp op);

/// How many rounds an exchange has after the first: at most, and as counted,
/// i32[]; null if at most 0.
struct OverflowRounds {
  int64_t most;
  mlir::Value count;
};
OverflowRounds emitRounds(LocalOp &local, graph::SendRowsOp op);

/// The factor of a table's rows that is sharded, if any is; an error if the
/// rows have several factors.
mlir::FailureOr<std::optional<Factor>> cutRows(LocalOp &local,
                                               mlir::Value table);

/// Row numbers of a whole table as those of its local shard.
struct OwnRows {
  /// The shard is one run of `rows`, from `offset` on.
  OwnRows(graph::Emitter &emit, mlir::Value ids, mlir::Value offset,
          int64_t rows);
  /// The shard has those of some indices along each factor.
  static OwnRows of(LocalOp &local, graph::Emitter &emit, mlir::Value ids,
                    const DimPlacement &rows);
  /// `rows` [shape of ids, width] with zeros for rows of other devices.
  mlir::Value masked(graph::Emitter &emit, mlir::Value rows) const;
  mlir::Value mask;    ///< which rows are in the shard, i1
  mlir::Value numbers; ///< in the shard; 0 for the others

private:
  OwnRows() = default;
};

/// A splat of another shape.
mlir::ElementsAttr resizeSplat(mlir::ElementsAttr splat,
                               mlir::RankedTensorType type);

} // namespace tessera::sharding
