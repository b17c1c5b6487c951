// The optimizer's update as functions of the module.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/autodiff/StepMath.h"
#include "llvm/ADT/StringMap.h"

namespace tessera::autodiff {

/// One function for each kind of parameter, so that a model's hundred updates
/// read as a hundred calls: (parameter, gradient, moments, clip scale, scalars
/// of the optimizer) -> (parameter, moments). It is a block (`graph.block`) and
/// inlined like a layer.
class UpdateFunctions {
public:
  UpdateFunctions(mlir::ModuleOp module, const Optimizer &optimizer)
      : module(module), optimizer(optimizer) {}

  /// Made on first use; `arguments` are the types of all operands.
  mlir::func::FuncOp get(mlir::RankedTensorType parameter, bool decay,
                         mlir::TypeRange arguments);

private:
  std::string nameOf(mlir::RankedTensorType type, bool decay) const;
  mlir::func::FuncOp make(llvm::StringRef name, mlir::RankedTensorType type,
                          bool decay, mlir::TypeRange arguments);

  mlir::ModuleOp module;
  const Optimizer &optimizer;
  llvm::StringMap<mlir::func::FuncOp> made;
};

} // namespace tessera::autodiff
