// What of one program belongs to which stage: the loops that have blocks, and
// what stands around them.
#pragma once
#include "passes/stages/LoopCut.h"

namespace tessera::stages {

/// A program with blocks in loops over microbatches, or in none. A loop that
/// goes backward follows the module's schedule, one that only counts before it
/// a table of its own; both have each stage on the same rank.
class ProgramCut {
public:
  ProgramCut(mlir::func::FuncOp function, const pipeline::Schedule &schedule)
      : function(function), schedule(schedule) {}
  /// Errors at what no pipeline can compute.
  mlir::LogicalResult build();

  /// Null: the op is no loop with blocks.
  LoopCut *loopOf(mlir::Operation *op) const;
  /// Blocks that stand in no loop, and all else of such a program; or null.
  LoopCut *whole() const;
  /// Whether the op, outside of the loops with blocks, is one of them or made
  /// of what they give.
  bool isOfLoops(mlir::Operation *op) const {
    return loopOf(op) || ofLoops.contains(op);
  }
  bool isOfLoops(mlir::Value value) const {
    return isOfLoops(value.getDefiningOp());
  }
  /// Numbers of arguments of the function that a value outside of cells and
  /// loops is made of, if it is made of no loop.
  const llvm::SmallBitVector &argumentsOf(mlir::Value value);

  mlir::func::FuncOp function;
  const pipeline::Schedule &schedule; ///< of the module, lowered
  /// In their order; the last one goes backward, if any does.
  std::vector<std::unique_ptr<LoopCut>> loops;
  /// Of each argument: who needs it in a cell.
  std::vector<Ranks> users;

private:
  mlir::FailureOr<llvm::SetVector<mlir::Block *>> findBodies();
  mlir::LogicalResult addLoop(mlir::Block &body);
  void findResultsOfLoops();
  void addUsers();

  llvm::DenseSet<mlir::Operation *> ofLoops;
  llvm::DenseMap<mlir::Value, llvm::SmallBitVector> arguments;
};

/// A table as text, lowered for programs, in which ranks stand still until a
/// transfer is done. Errors at `op`.
mlir::FailureOr<pipeline::Schedule> lowerTable(mlir::Operation *op,
                                               llvm::StringRef text);

} // namespace tessera::stages
