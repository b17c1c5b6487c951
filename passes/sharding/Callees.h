// The functions that calls refer to, and which of them are pointwise.
#pragma once
#include "dialects/graph/Programs.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseSet.h"

namespace tessera::sharding {

/// A program whose time counts: any but @init, which runs once.
inline bool isRepeated(mlir::func::FuncOp function) {
  return function.isPublic() &&
         !graph::isProgram(function, graph::Program::init);
}

/// A function of elementwise ops over tensors of one shape and scalars, such as
/// an optimizer's update: a call of it is sharded like one elementwise op.
bool isPointwise(mlir::func::FuncOp function);

/// The functions of a module, as long as none of them changes.
class Callees {
public:
  explicit Callees(mlir::ModuleOp module);

  /// Null if the module has no function of that name.
  mlir::func::FuncOp of(mlir::func::CallOp call) const {
    return symbols.lookup<mlir::func::FuncOp>(call.getCalleeAttr().getAttr());
  }
  bool isPointwise(mlir::func::FuncOp function) const {
    return pointwise.contains(function);
  }
  bool isPointwiseCall(mlir::Operation *op) const {
    auto call = mlir::dyn_cast<mlir::func::CallOp>(op);
    return call && pointwise.contains(of(call));
  }

private:
  mlir::SymbolTable symbols;
  llvm::DenseSet<mlir::Operation *> pointwise;
};

} // namespace tessera::sharding
