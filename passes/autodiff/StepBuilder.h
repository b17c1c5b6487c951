// What the programs of a step are made of: the state, the gradients of
// microbatches and the updates.
#pragma once
#include "passes/autodiff/Program.h"
#include "passes/autodiff/StepHooks.h"
#include "passes/autodiff/StepMath.h"
#include "passes/autodiff/UpdateFunctions.h"

namespace tessera::autodiff {

class StepBuilder {
public:
  StepBuilder(mlir::func::FuncOp gradients,
              const BuildTrainStepOptions &options);
  virtual ~StepBuilder() = default;

  /// Builds the programs, extends `init` by their state, and erases @gradients.
  mlir::LogicalResult build(mlir::func::FuncOp init);

protected:
  /// Builds the programs after @gradients.
  virtual mlir::LogicalResult emitPrograms() = 0;
  /// Called with all state in `init`.
  virtual void finishInit(mlir::func::FuncOp /*init*/) {}

  //===--- signatures -----------------------------------------------------===//

  /// Begins a program: the values below are then its own.
  void begin(graph::Program kind, llvm::ArrayRef<Port> arguments,
             llvm::ArrayRef<Port> results);
  llvm::SmallVector<Port> parameterPorts(bool onlyTrained = false) const;
  /// Those of batches, [A, B, T], and the seed.
  llvm::SmallVector<Port> batchPorts();
  Port scalarOutput(llvm::StringRef name) const;

  //===--- the gradients of a batch ---------------------------------------===//

  /// How many terms the loss of the batch is a mean over, f32[].
  mlir::Value termsOf(mlir::Value count);
  mlir::Value argument(llvm::StringRef input) {
    return findInput(program, input);
  }
  /// A program with gradients has all parameters first.
  mlir::ValueRange parameterValues();
  /// The wanted results of `function`, @gradients or @prepare_step, summed over
  /// all microbatches.
  llvm::SmallVector<mlir::Value> run(mlir::func::FuncOp function,
                                     llvm::ArrayRef<unsigned> wanted);
  /// Of the batch: the sum of losses, one gradient of each trained parameter,
  /// and the sums that @finish_step takes. `cotangent`, and for the other sums
  /// of the loss `penalty` (null: 1), have been set.
  struct Sums {
    mlir::Value loss;
    llvm::SmallVector<mlir::Value> grads, extra;
  };
  Sums differentiateBatch();
  /// What @finish_step makes of the sums: next values of frozen parameters in
  /// their slots of `results`, and the metrics that it gives.
  llvm::SmallVector<mlir::Value>
  finish(llvm::MutableArrayRef<mlir::Value> results,
         llvm::ArrayRef<mlir::Value> sums);

  //===--- the update -----------------------------------------------------===//

  /// New values of the trained parameters, and new moments kind by kind.
  struct Updated {
    llvm::SmallVector<mlir::Value> parameters, moments;
  };
  Updated updateAll(HyperTable &table, mlir::ValueRange values,
                    mlir::ValueRange grads, mlir::ValueRange momentValues,
                    mlir::Value scale, mlir::Value lr, mlir::Value t);
  size_t positionOf(mlir::StringAttr parameter) const;

  mlir::func::FuncOp gradients, program;
  StepHooks hooks;
  const BuildTrainStepOptions options;
  mlir::OpBuilder b;
  mlir::Location loc;
  graph::Emitter e;
  mlir::Type f32, i64;
  llvm::SmallVector<Parameter> parameters, trained;
  llvm::SmallVector<Port> moments; ///< kind by kind, of all trained parameters
  Port counter, hyper;
  /// State that begins at zero: moments and the counter, and what a builder
  /// adds.
  llvm::SmallVector<Port> zeroState;
  mlir::Value seed, stepsDone, cotangent, penalty;

private:
  mlir::LogicalResult check(mlir::func::FuncOp init);
  void collectState();
  mlir::RankedTensorType batchType(llvm::StringRef input);
  llvm::SmallVector<mlir::Value>
  runMicrobatch(mlir::func::FuncOp function, llvm::ArrayRef<unsigned> wanted,
                llvm::function_ref<mlir::Value(mlir::Value)> ofBatch,
                mlir::Value offset);
  llvm::SmallVector<mlir::Value> runLoop(mlir::func::FuncOp function,
                                         llvm::ArrayRef<unsigned> wanted);
  mlir::Value hyperConstant();
  void extendInit(mlir::func::FuncOp init);

  std::unique_ptr<Optimizer> optimizer;
  UpdateFunctions updates;
  unsigned firstGradient = 0;              ///< of the results of @gradients
  llvm::SmallVector<mlir::Value> prepared; ///< what @prepare_step gives
};

/// Builds @train_step.
std::unique_ptr<StepBuilder>
makeTrainStepBuilder(mlir::func::FuncOp gradients,
                     const BuildTrainStepOptions &options);
/// Builds @forward_backward, @optimizer_step and @init_trained.
std::unique_ptr<StepBuilder>
makeSeparateStepsBuilder(mlir::func::FuncOp gradients,
                         const BuildTrainStepOptions &options);

} // namespace tessera::autodiff
