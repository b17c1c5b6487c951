#include "passes/fusion/SameCluster.h"

using namespace mlir;
using namespace tessera;

static constexpr auto kIgnoreLocations = OperationEquivalence::IgnoreLocations;

static bool haveEqualAttributes(Operation *a, Operation *b) {
  auto withoutLayer = [](Operation *op) {
    NamedAttrList attrs(op->getDiscardableAttrDictionary());
    attrs.erase(graph::kLayerAttr);
    return attrs;
  };
  return a->getName().compareOpProperties(a->getPropertiesStorage(),
                                          b->getPropertiesStorage()) &&
         withoutLayer(a) == withoutLayer(b);
}

unsigned SameCluster::getHashValue(const Operation *key) {
  auto *op = const_cast<Operation *>(key);
  llvm::hash_code hash = op->hashProperties();
  for (Type type : op->getResultTypes())
    hash = llvm::hash_combine(hash, type);
  Block &body = cast<graph::ClusterOp>(op).getBody().front();
  for (Type type : body.getArgumentTypes())
    hash = llvm::hash_combine(hash, type);
  for (Operation &inner : body)
    hash = llvm::hash_combine(
        hash, OperationEquivalence::computeHash(
                  &inner, OperationEquivalence::ignoreHashValue,
                  OperationEquivalence::ignoreHashValue, kIgnoreLocations));
  return unsigned(size_t(hash));
}

bool SameCluster::isEqual(const Operation *one, const Operation *other) {
  if (one == other || one == getEmptyKey() || one == getTombstoneKey() ||
      other == getEmptyKey() || other == getTombstoneKey())
    return one == other;
  auto *a = const_cast<Operation *>(one), *b = const_cast<Operation *>(other);
  return a->getResultTypes() == b->getResultTypes() &&
         haveEqualAttributes(a, b) &&
         OperationEquivalence::isRegionEquivalentTo(
             &a->getRegion(0), &b->getRegion(0), kIgnoreLocations);
}
