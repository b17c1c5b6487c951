// What precision asks of an op, found out from its interfaces alone.
#pragma once
#include "dialects/graph/GraphOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace tessera::precision {

enum class OpClass {
  elementwise, ///< one f32 computation an element, fused with its neighbours
  movement,    ///< views, concat, pad: the element type passes through
  reduction,
  contraction, ///< accumulates in f32, may round or not
  gather,      ///< rows of a table
  composite,   ///< attention, norms, heads: inner precision is their own
  rows,        ///< puts or adds rows: the type of the rows passes through
  call,
  other, ///< computes in f32
};

/// Classes and linearity of every op of a function, taken before anything
/// changes.
class OpTraits {
public:
  explicit OpTraits(mlir::func::FuncOp function);

  OpClass classOf(mlir::Operation *op) const { return entries.at(op).kind; }
  /// Whether the gradient of the op reads neither operands nor results that
  /// depend on parameters or activations: then none of them is kept for it.
  bool isLinear(mlir::Operation *op) const { return entries.at(op).linear; }
  /// Depends on an argument of the function by way of float values.
  bool isActive(mlir::Value value) const { return active.contains(value); }

  /// Follows from arguments with graph.keep_f32, and so stays f32: a product
  /// with one, rows put into one, and what is computed from such values alone.
  /// Likewise results of ops with the attribute.
  bool isPinned(mlir::Value value) const { return pinned.contains(value); }

private:
  void findPinned(mlir::func::FuncOp function);
  struct Entry {
    OpClass kind;
    bool linear;
  };
  llvm::DenseMap<mlir::Operation *, Entry> entries;
  llvm::DenseSet<mlir::Value> active, pinned;
};

/// Whether the phase is about the function: blocks, and programs that take
/// parameters. @init makes parameters and takes none; it stays f32.
bool hasPrecision(mlir::func::FuncOp function);

/// Sets the function's type to that of its arguments and returned values.
void updateType(mlir::func::FuncOp function);

inline bool isFloatTensor(mlir::Value value) {
  auto type = mlir::dyn_cast<mlir::RankedTensorType>(value.getType());
  return type && mlir::isa<mlir::FloatType>(type.getElementType());
}

} // namespace tessera::precision
