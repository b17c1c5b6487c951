// Sharding rules, which ops have from their interface (graph::Shardable). See
// README.md in this folder.
#pragma once
#include "dialects/graph/GraphOps.h"

namespace tessera::sharding {

using graph::LoopDim;
using graph::LoopKind;
using graph::OpRule;

/// The rule of an op that computes; an error and failure if it has none.
mlir::FailureOr<OpRule> ruleOf(mlir::Operation *op);

} // namespace tessera::sharding
