// The sharding rule of an op: the op as a loop nest. A rule has one *loop
// dimension* (`loopDim`) for each loop, and says of which loop dimensions each
// dimension of an operand or result consists. The kind of a loop dimension
// (LoopKind) says what sharding it means. See passes/sharding/README.md.
#pragma once
#include "mlir/IR/Operation.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

namespace tessera::graph {

/// What sharding a loop dimension means.
enum class LoopKind {
  parallel, ///< each device computes its shard of the results
  sum,      ///< reduction: the results are partial values
  whole,    ///< not shardable
  own,      ///< only along axes with device-local row order
};

struct LoopDim {
  int64_t size;
  LoopKind kind = LoopKind::parallel;
};

/// `operands` and `results` have for each dimension the loop dimensions whose
/// product it is, the slowest-varying first.
struct OpRule {
  using Dim = llvm::SmallVector<unsigned, 2>;
  using Dims = llvm::SmallVector<Dim, 4>;
  using Sets = llvm::SmallVector<llvm::SmallVector<unsigned, 2>>;

  llvm::SmallVector<LoopDim> loops;
  llvm::SmallVector<Dims> operands, results;
  /// Sets of operands in which the op is linear together: if all of a set are
  /// partial, and no other operand is, the results are partial too.
  Sets linear;
  /// An operand to which the op adds: it must be partial along the axes that
  /// shard a `sum` loop dimension (graph.scatter_add's base).
  std::optional<unsigned> addend;
  /// Operands and results that hold rows, or the positions of rows: all have
  /// device-local order along the same axes. If such an axis shards loop
  /// dimensions that another result lacks, that result is partial along it.
  llvm::SmallVector<unsigned, 2> ownOperands, ownResults;
  /// The operand or result whose rows are on the devices of their groups, where
  /// another has the same rows on the devices of their tokens
  /// (graph.return_rows, graph.send_rows): axes of device-local order need not
  /// shard it.
  std::optional<unsigned> sentOperand, sentResult;
  /// Groups of rows. An axis of device-local order shards these or the rows.
  std::optional<unsigned> groups;
  /// Whether the op gives rows their positions (graph.group_rows): its results
  /// are in device-local order along all axes that shard its loops.
  bool numbersRows = false;
  /// Row by row: all operands and results have the same row order.
  bool isPointwise = false;

  unsigned loopDim(int64_t size, LoopKind kind = LoopKind::parallel) {
    loops.push_back({size, kind});
    return loops.size() - 1;
  }
  /// Adds a loop dimension for each dimension of `value`.
  Dims loopsOf(mlir::Value value, LoopKind kind = LoopKind::parallel);
};

namespace detail {

/// Elementwise: every operand and result has the loop dimensions of the first
/// result. `linear` is OpRule::linear.
OpRule pointwiseRule(mlir::Operation *op, OpRule::Sets linear = {});
/// Rows are shardable, the last dimension is not; operands after the first are
/// vectors along it.
OpRule rowRule(mlir::Operation *op);
/// Nothing is shardable: every device computes the op.
OpRule wholeRule(mlir::Operation *op);
/// The linear sets of a change of element type. Rounding is not linear: only
/// conversions to a wider float are.
OpRule::Sets linearConversion(mlir::Operation *op);

} // namespace detail
} // namespace tessera::graph
