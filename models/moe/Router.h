// The parts that a layer with experts is made of; private to models/moe.
#pragma once
#include "models/Builder.h"

namespace tessera::models {

/// What a router makes of tokens [tokens, hidden]; all floats are f32.
struct RouterChoice {
  mlir::Value logits, scores; ///< [tokens, experts]
  mlir::Value chosen;         ///< i32 [tokens, chosen], before any is dropped
  mlir::Value experts;        ///< the same; −1: dropped
  mlir::Value weights;        ///< [tokens, chosen]
};

RouterChoice chooseExperts(const Scope &scope, mlir::Value x);

/// Drops choices beyond each expert's capacity, sequence by sequence, so that
/// what is dropped does not depend on how a batch is divided. f32[]: how many
/// were.
mlir::Value keepWithinCapacity(graph::Emitter &e, const MoeSpec &moe,
                               const recipe::Recipe::Moe &recipe,
                               int64_t sequences, RouterChoice &choice);

/// Fills what `router` wants to know.
void judge(graph::Emitter &e, const MoeSpec &moe, const RouterChoice &choice,
           mlir::Value dropped, int64_t sequences, RouterScope &router);

} // namespace tessera::models
