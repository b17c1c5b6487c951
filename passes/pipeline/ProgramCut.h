// What of one program belongs to which stage: nothing of it depends on the rank
// whose program is made, so that all ranks agree on what they send.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/pipeline/Schedule.h"
#include "llvm/ADT/SmallBitVector.h"

namespace tessera::stages {

using Ranks = llvm::SmallBitVector;
using Values = llvm::SetVector<mlir::Value>;

/// Operands, and what regions use of what stands outside of them.
Values inputsOf(mlir::Operation *op);

/// FLOPs of an op, what it calls and what stands in its regions included.
int64_t flopsOf(mlir::Operation *root);

/// One value that the loop over microbatches carries: a sum that starts at
/// zero, whose terms are made by one stage or several.
struct Sum {
  mlir::SmallVector<mlir::Operation *> terms; ///< what adds, in order
  /// The terms are what one stage does with the value, addition or not.
  bool isWhole = false;
  Ranks ranks; ///< who has a part of it
};

/// Blocks of a program, in one loop over microbatches or in none, and their
/// surroundings as cells: 0 … S-1 is the forward of a stage, 2S-1-s its
/// backward, and values go from a cell to the same or a later one. An op is in
/// the first cell where it can be; free of them where it needs no block: it is
/// computed wherever it is used.
class ProgramCut {
public:
  static constexpr int kFree = -1;

  ProgramCut(mlir::func::FuncOp function, const pipeline::Schedule &schedule)
      : function(function), schedule(schedule), stageCount(schedule.stages),
        toNext(stageCount), toPrevious(stageCount) {}
  /// Errors at what no pipeline can compute.
  mlir::LogicalResult build();

  int cellOf(mlir::Operation *op) const;
  int stageOf(int cell) const {
    return cell < stageCount ? cell : 2 * stageCount - 1 - cell;
  }
  int rankOf(int cell) const { return schedule.rankOf(stageOf(cell)); }
  /// What is cut into cells: the loop's body, or the function's.
  mlir::Block &body() const {
    mlir::func::FuncOp whole = function;
    return loop ? loop->getRegion(0).front() : whole.getBody().front();
  }
  bool isInLoop(mlir::Value value) const {
    return loop && value.getParentBlock() == &body();
  }
  /// Whether no other cell needs what the op computes in a backward: where a
  /// schedule halves it, this is the half for the gradients of weights.
  bool isForWeights(mlir::Operation *op) const {
    return !forInputs.contains(op);
  }
  /// FLOPs of a turn of the loop, or of the program, by stage.
  struct Work {
    mlir::SmallVector<int64_t> forward, backward;
    /// The part of `backward` that is for weights, where a schedule halves it.
    mlir::SmallVector<int64_t> weights;
  };
  Work workOfStages() const;
  /// The number of the sum that the op adds to.
  std::optional<unsigned> sumOf(mlir::Operation *op) const;

  /// Numbers of arguments of the function that a value without a cell is made
  /// of.
  const llvm::SmallBitVector &argumentsOf(mlir::Value value);

  mlir::func::FuncOp function;
  const pipeline::Schedule &schedule;
  int stageCount;
  graph::LoopOp loop; ///< null: the program runs each stage once, forward
  bool hasBlocks = false;
  std::vector<Sum> sums; ///< of each carried value
  /// Values that stage s sends to s + 1 in its forward, and to s - 1 in its
  /// backward.
  std::vector<Values> toNext, toPrevious;
  /// Of each argument: who needs it in a cell.
  std::vector<Ranks> users;

private:
  mlir::LogicalResult findBlocks();
  mlir::LogicalResult findSums();
  mlir::SmallVector<mlir::Operation *> additionsTo(unsigned i);
  mlir::SmallVector<mlir::Operation *> usersOf(unsigned i);
  void placeSums();
  int earliestOf(mlir::Operation *op) const;
  mlir::LogicalResult placeOps();
  mlir::FailureOr<int> placeCall(mlir::Operation *op, int earliest);
  void route(mlir::Value value, int from, int to);
  void addUses();
  void inlineBackwards();
  void halveBackwards();

  llvm::DenseMap<mlir::Operation *, int> cells;
  llvm::DenseMap<mlir::Operation *, unsigned> sumByTerm;
  llvm::DenseSet<mlir::Operation *> forInputs;
  bool isHalved = false; ///< whether the schedule halves backwards
  llvm::DenseMap<mlir::Value, llvm::SmallBitVector> arguments;
};

} // namespace tessera::stages
