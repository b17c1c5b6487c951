// Mixtures of experts as graph ops: routing, the experts' outputs, and the
// router's losses and metrics.
#pragma once
#include "models/Builder.h"

namespace tessera::models {

/// Columns of a router's sums for the end of a step: sums over tokens, f32.
enum RouterSum : int64_t {
  droppedSum, ///< choices beyond the capacity
  entropySum,
  zSum,       ///< (log Σ exp of the logits)²
  balanceSum, ///< the balance loss, once for each token
  routerSums
};

/// x [batch, tokens, hidden] → the output of the layer's experts, including the
/// shared one. Follows scope.router if there is one, and fills its results.
mlir::Value moeLayer(const Scope &scope, mlir::Value x);

/// The table that runtime/train/Router.h describes, of loads f32
/// [layers, experts] and sums f32 [layers, routerSums] over all tokens.
mlir::Value routerTable(graph::Emitter &e, const MoeSpec &moe,
                        mlir::Value loads, mlir::Value sums);

/// bias + rate × sign(mean load − load), [experts] (2408.15664, algorithm 1).
mlir::Value movedBias(graph::Emitter &e, mlir::Value bias, mlir::Value load,
                      double rate);

} // namespace tessera::models
