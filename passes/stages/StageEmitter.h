// The program of one rank of a pipeline.
#pragma once
#include "dialects/dist/DistOps.h"
#include "dialects/graph/Build.h"
#include "parallelism/pipeline/SteadyState.h"
#include "passes/stages/ResultLocations.h"

namespace tessera::stages {

/// The parameters of one rank; the cut is the same for all.
struct RankView {
  dist::MeshOp mesh;
  int rank;
  const StateRanks &state;
};

class StageEmitter {
public:
  StageEmitter(ProgramCut &cut, const ResultLocations &locations,
               const RankView &view);
  /// Replaces the function's body, arguments and results.
  mlir::LogicalResult run();

private:
  using Map = llvm::DenseMap<mlir::Value, mlir::Value>;

  bool keepsState(mlir::DictionaryAttr attrs) const;
  void addArguments();
  mlir::LogicalResult emitLoop(LoopCut &loop);
  mlir::LogicalResult emitSchedule();
  mlir::LogicalResult emit(const pipeline::Instruction &each);
  mlir::LogicalResult emitPair(const pipeline::Instruction &each);
  mlir::LogicalResult emitWhole();
  enum class Half { both, inputs, weights };
  /// What one instruction computes of the loop's body.
  struct CellPart {
    int cell;
    Half half = Half::both;
  };
  /// Two of an OVERLAP, none of a transfer.
  mlir::SmallVector<CellPart> partsOf(const pipeline::Instruction &each) const;
  bool isIn(mlir::Operation *op, CellPart where) const;
  mlir::LogicalResult emitCell(CellPart where, int microbatch);
  mlir::LogicalResult addToSum(mlir::Operation *op, unsigned sum,
                               int microbatch);
  mlir::LogicalResult send(const Values &values, int from, int to,
                           int microbatch);
  void receive(const Values &values, int from, int to, int microbatch);
  void emitSums();
  mlir::Value addParts(const Ranks &ranks, mlir::Value own);
  mlir::LogicalResult emitResults();
  mlir::LogicalResult share(llvm::ArrayRef<mlir::Value> values);
  mlir::LogicalResult shareScalars(llvm::ArrayRef<mlir::Value> scalars);
  mlir::LogicalResult emitReturn();

  mlir::Value initOf(mlir::Value value) const;
  /// The emitted values: of the whole step, or of a microbatch.
  Map &mapOf(mlir::Value value, int microbatch);
  mlir::Value get(mlir::Value value, int microbatch);
  mlir::Operation *clone(mlir::Operation *op, int microbatch,
                         mlir::Value replaced = {}, mlir::Value by = {});
  mlir::Operation *sliceAt(graph::DynamicSliceOp op, mlir::Value input,
                           int microbatch);
  // The loop of a schedule's steady state (SteadyLoop.cpp).
  struct SteadyLoop;
  mlir::LogicalResult emitSteadyLoop(const pipeline::InstructionList &list,
                                     const pipeline::SteadyState &steady);
  mlir::Operation *firstTerm(const Sum &sum,
                             llvm::ArrayRef<pipeline::Instruction> trip) const;
  mlir::Value startOfSum(unsigned number,
                         llvm::ArrayRef<pipeline::Instruction> trip);
  mlir::LogicalResult yieldNext();
  void finishLoop(SteadyLoop &loop);
  mlir::Value getInLoop(mlir::Value value, int microbatch);
  mlir::Value getBeforeLoop(mlir::Value value);
  mlir::Value numberInLoop(int microbatch);
  mlir::Value rowInLoop(mlir::Value rows, int microbatch);
  bool isOfAllMicrobatches(mlir::Value value);
  bool isView(mlir::Value value);

  mlir::Value permute(mlir::Value value, llvm::ArrayRef<int64_t> targets);
  mlir::Value addOverRanks(mlir::Value part);
  mlir::ArrayAttr axes();
  mlir::FlatSymbolRefAttr meshName();

  ProgramCut &cut;
  const ResultLocations &locations;
  RankView view;
  mlir::OpBuilder b;
  graph::Emitter e;
  mlir::Block *body;
  Map step;
  LoopCut *part = nullptr;             ///< whose cells are emitted
  std::vector<Map> microbatches;       ///< of that loop
  mlir::SmallVector<mlir::Value> sums; ///< of that loop so far; null: no term
  SteadyLoop *steadyLoop = nullptr;    ///< whose body is emitted
  mlir::DenseI64ArrayAttr pairMark;    ///< of what is emitted; null: of no pair
  int64_t pairs = 0;
  llvm::DenseMap<mlir::Value, bool> ofAllMicrobatches;
};

} // namespace tessera::stages
