// What of one loop over microbatches, or of a program without one, belongs to
// which stage: nothing of it depends on the rank whose program is made, so that
// all ranks agree on what they send.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "parallelism/pipeline/Schedule.h"
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

/// Blocks in one loop, or in a function's body, and their surroundings as
/// cells: 0 … S-1 is the forward of a stage, 2S-1-s its backward, and values go
/// from a cell to the same or a later one. An op is in the first cell where it
/// can be; free of them where it needs no block: it is computed wherever it is
/// used.
class LoopCut {
public:
  static constexpr int kFree = -1;

  /// `body` is a loop's or a function's, `schedule` the lowered one that the
  /// loop follows.
  LoopCut(mlir::Block &body, pipeline::Schedule schedule);
  /// Errors at what no pipeline can compute.
  mlir::LogicalResult build();

  int cellOf(mlir::Operation *op) const;
  int stageOf(int cell) const {
    return cell < stageCount ? cell : 2 * stageCount - 1 - cell;
  }
  int rankOf(int cell) const { return schedule.rankOf(stageOf(cell)); }
  mlir::Block &body() const { return *block; }
  /// Whether each microbatch has a value of its own.
  bool isOfMicrobatch(mlir::Value value) const {
    return loop && value.getParentBlock() == block;
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

  const pipeline::Schedule schedule;
  const int stageCount;
  graph::LoopOp loop;    ///< null: the program runs each stage once, forward
  std::vector<Sum> sums; ///< of each carried value
  /// Values that stage s sends to s + 1 in its forward, and to s - 1 in its
  /// backward.
  std::vector<Values> toNext, toPrevious;
  /// Values from outside (of a function's body: its arguments), and who needs
  /// them in a cell.
  llvm::MapVector<mlir::Value, Ranks> users;

private:
  mlir::LogicalResult findSums();
  mlir::SmallVector<mlir::Operation *> additionsTo(unsigned i);
  mlir::SmallVector<mlir::Operation *> usersOf(unsigned i);
  void placeSums();
  int earliestOf(mlir::Operation *op) const;
  mlir::LogicalResult placeOps();
  mlir::FailureOr<int> placeCall(mlir::Operation *op, int earliest);
  void route(mlir::Value value, int from, int to);
  void addUses();
  const Values &outsideOf(mlir::Value value);
  void inlineBackwards();
  void halveBackwards();

  mlir::Block *block;
  llvm::DenseMap<mlir::Operation *, int> cells;
  llvm::DenseMap<mlir::Operation *, unsigned> sumByTerm;
  llvm::DenseSet<mlir::Operation *> forInputs;
  bool isHalved = false; ///< whether the schedule halves backwards
  /// What free values of the body are made of.
  llvm::DenseMap<mlir::Value, Values> outside;
};

} // namespace tessera::stages
