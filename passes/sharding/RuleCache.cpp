#include "passes/sharding/RuleCache.h"
#include "passes/sharding/Factors.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

// Ops of any two layers may be alike.
static NamedAttrList attributesButLayer(Operation *op) {
  NamedAttrList attrs(op->getDiscardableAttrDictionary());
  attrs.erase(graph::kLayerAttr);
  return attrs;
}

unsigned RuleCache::Alike::getHashValue(const Operation *key) {
  auto *op = const_cast<Operation *>(key);
  llvm::hash_code code =
      llvm::hash_combine(op->getName(), op->hashProperties());
  for (Type type : op->getResultTypes())
    code = llvm::hash_combine(code, type);
  for (Type type : op->getOperandTypes())
    code = llvm::hash_combine(code, type);
  return code;
}

bool RuleCache::Alike::isEqual(const Operation *left, const Operation *right) {
  auto *a = const_cast<Operation *>(left), *b = const_cast<Operation *>(right);
  if (a == b)
    return true;
  if (a == getEmptyKey() || a == getTombstoneKey() || b == getEmptyKey() ||
      b == getTombstoneKey())
    return false;
  return a->getName() == b->getName() && a->getNumRegions() == 0 &&
         b->getNumRegions() == 0 &&
         a->getName().compareOpProperties(a->getPropertiesStorage(),
                                          b->getPropertiesStorage()) &&
         a->getResultTypes() == b->getResultTypes() &&
         llvm::equal(a->getOperandTypes(), b->getOperandTypes()) &&
         attributesButLayer(a) == attributesButLayer(b);
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
