// What the passes over graph functions can count on, checked once at their
// start instead of at every cast.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinTypes.h"

namespace tessera {

/// Error unless the function is one block that ends in func.return, all of
/// whose values are ranked tensors: what functions are until planning. The
/// types that `also` takes are fine, too.
inline mlir::LogicalResult requirePlainFunction(
    mlir::func::FuncOp function, llvm::function_ref<bool(mlir::Type)> also =
                                     [](mlir::Type) { return false; }) {
  auto isTensor = [&](mlir::Type type) {
    return mlir::isa<mlir::RankedTensorType>(type) || also(type);
  };
  if (!function.getBody().hasOneBlock())
    return function.emitOpError(
        "expects a body of one block; a graph function does not branch");
  mlir::WalkResult result = function.walk([&](mlir::Operation *op) {
    bool plain = llvm::all_of(op->getResultTypes(), isTensor);
    for (mlir::Region &region : op->getRegions())
      for (mlir::Block &block : region)
        plain &= llvm::all_of(block.getArgumentTypes(), isTensor);
    if (plain)
      return mlir::WalkResult::advance();
    op->emitOpError("has values that are not tensors; a graph function has "
                    "no others");
    return mlir::WalkResult::interrupt();
  });
  return mlir::failure(result.wasInterrupted());
}

} // namespace tessera
