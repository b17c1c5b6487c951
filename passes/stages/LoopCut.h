// Which ops of one loop over microbatches, or of a program without one, belong
// to which stage. Nothing here depends on the rank whose program is emitted, so
// all ranks agree on their transfers.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "parallelism/pipeline/Schedule.h"
#include "llvm/ADT/SmallBitVector.h"

namespace tessera::stages {

using Ranks = llvm::SmallBitVector;
using Values = llvm::SetVector<mlir::Value>;

/// Operands, and the values from outside that regions use.
Values inputsOf(mlir::Operation *op);

/// FLOPs of an op, including its callees and its regions.
int64_t flopsOf(mlir::Operation *root, mlir::SymbolTableCollection &symbols);

/// A value that the loop over microbatches carries: a sum that starts at zero,
/// with terms from one stage or several.
struct Sum {
  mlir::SmallVector<mlir::Operation *> terms; ///< the additions, in order
  /// The terms are all ops on the value, additions or not, of one stage.
  bool isWhole = false;
  /// No term depends on a block: each rank adds up all of them by itself.
  bool isFree = false;
  Ranks ranks; ///< those with terms
};

/// Assigns the ops of one loop, or of a function's body, to cells. Cell s, for
/// s from 0 to S-1, is the forward of stage s, cell 2S-1-s its backward; values
/// go from a cell to the same or a later one. An op is in the first cell in
/// which its operands are available. An op that does not depend on a block is
/// free: it is computed wherever it is used.
class LoopCut {
public:
  static constexpr int kFree = -1;

  /// `body` is a loop's or a function's; `schedule` is the loop's, lowered.
  LoopCut(mlir::Block &body, pipeline::Schedule schedule);
  /// An error at the first op that a pipeline cannot compute.
  mlir::LogicalResult build();

  int cellOf(mlir::Operation *op) const;
  int stageOf(int cell) const {
    return cell < stageCount ? cell : 2 * stageCount - 1 - cell;
  }
  int rankOf(int cell) const { return schedule.rankOf(stageOf(cell)); }
  /// The cell in which the rank adds the op, or computes it.
  int cellOn(int rank, mlir::Operation *op) const;
  mlir::Block &body() const { return *block; }
  /// Whether each microbatch has a value of its own.
  bool isOfMicrobatch(mlir::Value value) const {
    return loop && value.getParentBlock() == block;
  }
  /// Whether no other cell needs the op's results, nor I has computed the term
  /// that it adds: if the schedule splits backwards, it belongs to W, the
  /// gradients of weights.
  bool isForWeights(mlir::Operation *op) const {
    return !forInputs.contains(op);
  }
  /// FLOPs of one iteration of the loop, or of the program, by stage.
  struct Work {
    mlir::SmallVector<int64_t> forward, backward;
    /// The part of `backward` for weights, if the schedule splits backwards.
    mlir::SmallVector<int64_t> weights;
  };
  Work workOfStages() const;
  /// The index of the sum to which the op adds.
  std::optional<unsigned> sumOf(mlir::Operation *op) const;

  const pipeline::Schedule schedule;
  const int stageCount;
  graph::LoopOp loop;    ///< null: the program runs each stage once, forward
  std::vector<Sum> sums; ///< one for each carried value
  /// Values that stage s sends to s + 1 in its forward, and to s - 1 in its
  /// backward.
  std::vector<Values> toNext, toPrevious;
  /// Values from outside (for a function's body its arguments), and the ranks
  /// whose cells use them.
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
  void addEarly(const Sum &sum);

  mlir::Block *block;
  llvm::DenseMap<mlir::Operation *, int> cells;
  llvm::DenseMap<mlir::Operation *, unsigned> sumByTerm;
  llvm::DenseSet<mlir::Operation *> forInputs;
  bool isHalved = false; ///< whether the schedule splits backwards into I and W
  /// The values from outside on which free values of the body depend.
  llvm::DenseMap<mlir::Value, Values> outside;
};

} // namespace tessera::stages
