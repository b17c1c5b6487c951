#include "passes/sharding/RuleCache.h"
#include "passes/sharding/Factors.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

unsigned RuleCache::Alike::getHashValue(const Operation *key) {
  auto *op = const_cast<Operation *>(key);
  llvm::hash_code code = OperationEquivalence::computeHash(
      op, OperationEquivalence::ignoreHashValue,
      OperationEquivalence::ignoreHashValue,
      OperationEquivalence::IgnoreLocations);
  for (Value operand : op->getOperands())
    code = llvm::hash_combine(code, operand.getType());
  return code;
}

bool RuleCache::Alike::isEqual(const Operation *left, const Operation *right) {
  auto *a = const_cast<Operation *>(left), *b = const_cast<Operation *>(right);
  if (a == b)
    return true;
  if (a == getEmptyKey() || a == getTombstoneKey() || b == getEmptyKey() ||
      b == getTombstoneKey())
    return false;
  return OperationEquivalence::isEquivalentTo(
             a, b, OperationEquivalence::ignoreValueEquivalence, nullptr,
             OperationEquivalence::IgnoreLocations) &&
         llvm::equal(a->getOperandTypes(), b->getOperandTypes());
}

FailureOr<const OpRule *> RuleCache::of(Operation *op) {
  auto known = rules.find(op);
  if (known != rules.end())
    return known->second.get();
  FailureOr<OpRule> rule = ruleOfComputation(op);
  if (failed(rule))
    return failure();
  auto kept = std::make_unique<OpRule>(std::move(*rule));
  return rules.try_emplace(op, std::move(kept)).first->second.get();
}
