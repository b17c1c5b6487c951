#include "passes/sharding/Rule.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;

FailureOr<OpRule> sharding::ruleOf(Operation *op) {
  if (auto shardable = dyn_cast<graph::Shardable>(op))
    return shardable.getShardingRule();
  return op->emitOpError("has no sharding rule; ops that compute implement the "
                         "interface Shardable");
}
