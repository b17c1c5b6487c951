// How an op may be cut: a name for every loop that it stands for, and where
// those names are in its operands and results. See README.md in this folder.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "llvm/ADT/SmallVector.h"

namespace tessera::sharding {

/// What a cut along a loopDim means.
enum class LoopKind {
  free,  ///< each device computes its part of the results
  sum,   ///< each device computes parts of sums: results are partial
  whole, ///< cannot be cut
  own,   ///< cut only along axes along which rows are a device's own
};

struct LoopDim {
  int64_t size;
  LoopKind kind = LoopKind::free;
};

/// An op as a nest of loops. `operands` and `results` have for each dimension
/// the loops whose product it is, the slowest-varying first.
struct OpRule {
  using Dim = llvm::SmallVector<unsigned, 2>;
  using Dims = llvm::SmallVector<Dim, 4>;

  llvm::SmallVector<LoopDim> loops;
  llvm::SmallVector<Dims> operands, results;
  /// Sets of operands in which the op is linear together: where all of a set
  /// are parts of sums, and no other operand is, so are the results.
  llvm::SmallVector<llvm::SmallVector<unsigned, 2>> linear;
  /// An operand to which a cut along a `sum` loopDim adds: it must be partial
  /// along the same axes (graph.scatter_add's base).
  std::optional<unsigned> addend;
  /// Operands and results that hold rows, or say where rows are: along the same
  /// axes they are each device's own. A cut of those axes along loops that a
  /// result without own rows does not have makes it parts of sums.
  llvm::SmallVector<unsigned, 2> ownOperands, ownResults;
  /// The operand or result that is rows with their groups where another is the
  /// same rows with their tokens (graph.return_rows, graph.send_rows): axes of
  /// own rows may cut it less.
  std::optional<unsigned> sentOperand, sentResult;
  /// Groups of rows. An axis of own rows that does not cut rows cuts these.
  std::optional<unsigned> groups;
  /// Whether the op gives rows their positions (graph.group_rows): its results
  /// are own along all axes that cut its loops.
  bool numbersRows = false;
  /// Elementwise: where one operand has own rows, all and the results do.
  bool isPointwise = false;

  unsigned loopDim(int64_t size, LoopKind kind = LoopKind::free) {
    loops.push_back({size, kind});
    return loops.size() - 1;
  }
  /// A loopDim for each dimension of `type`, of operand or result alike.
  Dims loopsOf(mlir::Value value, LoopKind kind = LoopKind::free);
};

/// The rule of an op that computes; failure after an error where it has none.
mlir::FailureOr<OpRule> ruleOf(mlir::Operation *op);

} // namespace tessera::sharding
