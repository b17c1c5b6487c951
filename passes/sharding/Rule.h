// How an op may be cut: a name for every loop that it stands for, and where
// those names are in its operands and results. See README.md in this folder.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "llvm/ADT/SmallVector.h"

namespace tessera::sharding {

/// What a cut along a letter means.
enum class LetterKind {
  free,  ///< each device computes its part of the results
  sum,   ///< each device computes parts of sums: results are partial
  whole, ///< cannot be cut
  own,   ///< cut only along axes along which rows are a device's own
};

struct Letter {
  int64_t size;
  LetterKind kind = LetterKind::free;
};

/// An op as a nest of loops. `operands` and `results` have for each dimension
/// the letters whose product it is, the slowest-varying first.
struct OpRule {
  using Dim = llvm::SmallVector<unsigned, 2>;
  using Dims = llvm::SmallVector<Dim, 4>;

  llvm::SmallVector<Letter> letters;
  llvm::SmallVector<Dims> operands, results;
  /// Sets of operands in which the op is linear together: where all of a set
  /// are parts of sums, and no other operand is, so are the results.
  llvm::SmallVector<llvm::SmallVector<unsigned, 2>> linear;
  /// An operand to which a cut along a `sum` letter adds: it must be partial
  /// along the same axes (graph.scatter_add's base).
  std::optional<unsigned> addend;
  /// Operands and results that hold rows, or say where rows are: along the same
  /// axes they are each device's own. A cut of those axes along letters that a
  /// result without own rows does not have makes it parts of sums.
  llvm::SmallVector<unsigned, 2> ownOperands, ownResults;
  /// The operand or result that is rows with their groups where another is the
  /// same rows with their tokens (graph.return_rows, graph.send_rows): axes of
  /// own rows may cut it less.
  std::optional<unsigned> sentOperand, sentResult;
  /// Groups of rows. An axis of own rows that does not cut rows cuts these.
  std::optional<unsigned> groups;
  /// Whether the op gives rows their places (graph.group_rows): its results are
  /// own along all axes that cut its letters.
  bool numbersRows = false;
  /// Elementwise: where one operand has own rows, all and the results do.
  bool isPointwise = false;

  unsigned letter(int64_t size, LetterKind kind = LetterKind::free) {
    letters.push_back({size, kind});
    return letters.size() - 1;
  }
  /// A letter for each dimension of `type`, of operand or result alike.
  Dims lettersOf(mlir::Value value, LetterKind kind = LetterKind::free);
};

/// The rule of an op that computes; failure after an error where it has none.
mlir::FailureOr<OpRule> ruleOf(mlir::Operation *op);

} // namespace tessera::sharding
