// Private parts of a layer with experts.
#pragma once
#include "models/Builder.h"

namespace tessera::models {

/// The outputs of a router for tokens [tokens, hidden]; all floats are f32.
struct RouterChoice {
  mlir::Value logits, scores; ///< [tokens, experts]
  mlir::Value chosen;         ///< i32 [tokens, chosen], before any is dropped
  mlir::Value experts;        ///< the same; −1: dropped
  mlir::Value weights;        ///< [tokens, chosen]
};

RouterChoice chooseExperts(const Scope &scope, mlir::Value x,
                           int64_t sequences);

/// Drops choices beyond each expert's capacity, sequence by sequence, so that
/// drops do not depend on how a batch is divided. Returns their number, f32[].
mlir::Value keepWithinCapacity(graph::Emitter &e, const MoeSpec &moe,
                               const recipe::Recipe::Moe &recipe,
                               int64_t sequences, RouterChoice &choice);

/// Fills the results that `router` requests. `step` is i64[], or null if none
/// depends on it.
void judge(graph::Emitter &e, const MoeSpec &moe, const RouterChoice &choice,
           mlir::Value dropped, int64_t sequences, mlir::Value step,
           RouterScope &router);

} // namespace tessera::models
