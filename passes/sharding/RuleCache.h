// Rules of ops, one for all that are alike: of one name, with the same
// attributes, over operands and results of the same types.
#pragma once
#include "mlir/IR/OperationSupport.h"
#include "passes/sharding/Rule.h"
#include "llvm/ADT/DenseMap.h"

namespace tessera::sharding {

/// As long as no op changes that a rule was asked for.
class RuleCache {
public:
  /// The rule of an op or of a pointwise call, which lives as long as the
  /// cache; ops that are alike have one. Failure after an error where there is
  /// none.
  mlir::FailureOr<const OpRule *> of(mlir::Operation *op);

private:
  struct Alike : llvm::DenseMapInfo<mlir::Operation *> {
    static unsigned getHashValue(const mlir::Operation *op);
    static bool isEqual(const mlir::Operation *a, const mlir::Operation *b);
  };
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<OpRule>, Alike> rules;
};

} // namespace tessera::sharding
