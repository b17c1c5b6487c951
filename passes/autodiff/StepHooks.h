// What a model does around the gradients of a step: @prepare_step, whose
// results are sums over the microbatches that @loss takes as inputs, and
// @finish_step, which makes next values of frozen parameters and metrics out of
// sums that @loss gives. A model may have either, both or none.
#pragma once
#include "passes/autodiff/Program.h"

namespace tessera::autodiff {

class StepHooks {
public:
  explicit StepHooks(mlir::func::FuncOp gradients);

  /// Null where the model has none.
  mlir::func::FuncOp prepare() const { return prepareStep; }
  mlir::func::FuncOp finish() const { return finishStep; }

  /// The functions fit @gradients: it gives what @finish_step takes and takes
  /// what @prepare_step gives, and @finish_step gives next values of all
  /// frozen parameters, or of none.
  mlir::LogicalResult check(llvm::ArrayRef<Parameter> parameters);

  /// Results of @gradients that @finish_step takes, known after check().
  llvm::ArrayRef<unsigned> sums() const { return wanted; }
  /// Inputs that are cotangents of results of @loss other than the first.
  llvm::SmallVector<mlir::Value> cotangents(mlir::func::FuncOp function) const;
  /// The outputs that @finish_step gives.
  llvm::SmallVector<Port> outputPorts();
  void erase();

private:
  mlir::LogicalResult checkPrepare();
  mlir::LogicalResult checkFinish(llvm::ArrayRef<Parameter> parameters);

  mlir::func::FuncOp gradients, prepareStep, finishStep;
  llvm::SmallVector<unsigned> wanted;
};

} // namespace tessera::autodiff
