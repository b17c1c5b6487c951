// Which ops of one program belong to which stage: the loops with blocks, and
// the ops around them.
#pragma once
#include "passes/stages/LoopCut.h"

namespace tessera::stages {

/// A program with blocks in loops over microbatches, or in none. A loop with a
/// backward pass follows the module's schedule, an earlier loop without one has
/// its own schedule; both have each stage on the same rank.
class ProgramCut {
public:
  ProgramCut(mlir::func::FuncOp function, const pipeline::Schedule &schedule)
      : function(function), schedule(schedule) {}
  /// An error at the first op that a pipeline cannot compute.
  mlir::LogicalResult build();

  /// Null if the op is not a loop with blocks.
  LoopCut *loopOf(mlir::Operation *op) const;
  /// The whole program, if its blocks are outside of loops; otherwise null.
  LoopCut *whole() const;
  /// Whether the op is a loop with blocks, or depends on the results of one.
  bool isOfLoops(mlir::Operation *op) const {
    return loopOf(op) || ofLoops.contains(op);
  }
  bool isOfLoops(mlir::Value value) const {
    return isOfLoops(value.getDefiningOp());
  }
  /// The indices of the function's arguments on which a value outside of cells
  /// and loops depends, if it does not depend on a loop.
  const llvm::SmallBitVector &argumentsOf(mlir::Value value);

  mlir::func::FuncOp function;
  const pipeline::Schedule &schedule; ///< of the module, lowered
  /// In program order; only the last one may have a backward pass.
  std::vector<std::unique_ptr<LoopCut>> loops;
  /// For each argument, the ranks whose cells use it.
  std::vector<Ranks> users;

private:
  mlir::FailureOr<llvm::SetVector<mlir::Block *>> findBodies();
  mlir::LogicalResult addLoop(mlir::Block &body);
  void findResultsOfLoops();
  void addUsers();

  llvm::DenseSet<mlir::Operation *> ofLoops;
  llvm::DenseMap<mlir::Value, llvm::SmallBitVector> arguments;
};

/// Reads a schedule's CSV and lowers it for programs, in which ranks wait until
/// a transfer is done. Errors at `op`.
mlir::FailureOr<pipeline::Schedule> lowerTable(mlir::Operation *op,
                                               llvm::StringRef text);

} // namespace tessera::stages
