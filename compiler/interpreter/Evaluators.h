// What each primitive computes, as the clearest loops. Elementwise ops speak
// for themselves (Elementwise::evaluateScalar), composites are decomposed.
#pragma once
#include "compiler/interpreter/Tensor.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/Error.h"
#include <functional>

namespace tessera::interpreter {

using Operands = llvm::ArrayRef<const Tensor *>;
using Evaluator =
    std::function<llvm::Expected<Tensor>(mlir::Operation *, Operands)>;

/// Evaluators by op.
class EvaluatorTable {
public:
  /// `evaluate(op, operands)` gives the op's only result.
  template <typename Op>
  void add(llvm::Expected<Tensor> (*evaluate)(Op, Operands)) {
    table[mlir::TypeID::get<Op>()] = [evaluate](mlir::Operation *op,
                                                Operands operands) {
      return evaluate(mlir::cast<Op>(op), operands);
    };
  }
  /// Null if the op has none.
  const Evaluator *find(mlir::Operation *op) const {
    auto it = table.find(op->getName().getTypeID());
    return it == table.end() ? nullptr : &it->second;
  }

private:
  llvm::DenseMap<mlir::TypeID, Evaluator> table;
};

// One function a family.
void addShapeEvaluators(EvaluatorTable &table);
void addMatmulEvaluators(EvaluatorTable &table);
void addSamplingEvaluators(EvaluatorTable &table);

/// Shape of the op's only result.
inline llvm::ArrayRef<int64_t> resultShape(mlir::Operation *op) {
  return mlir::cast<mlir::RankedTensorType>(op->getResult(0).getType())
      .getShape();
}

/// Error that names the op and where it came from.
llvm::Error fail(mlir::Operation *op, const llvm::Twine &message);

} // namespace tessera::interpreter
