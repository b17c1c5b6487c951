// Sharding rules of ops. Ops of one name with equal attributes and types share
// a rule.
#pragma once
#include "mlir/IR/OperationSupport.h"
#include "passes/sharding/Rule.h"
#include "llvm/ADT/DenseMap.h"

namespace tessera::sharding {

/// Valid as long as no op changes whose rule was requested.
class RuleCache {
public:
  /// The rule of an op or of a pointwise call, which lives as long as the
  /// cache. An error if the op has none.
  mlir::FailureOr<const OpRule *> of(mlir::Operation *op);

private:
  struct Alike : llvm::DenseMapInfo<mlir::Operation *> {
    static unsigned getHashValue(const mlir::Operation *op);
    static bool isEqual(const mlir::Operation *a, const mlir::Operation *b);
  };
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<OpRule>, Alike> rules;
};

} // namespace tessera::sharding
