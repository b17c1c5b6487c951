// Estimates of KL(p || q) from tokens that were sampled from p (Recipe.h).
#pragma once
#include "dialects/graph/Build.h"
#include "runtime/recipe/Recipe.h"

namespace tessera::models {

/// `distance`: log p - log q of each token.
inline mlir::Value divergence(graph::Emitter &e, recipe::KlEstimator estimator,
                              mlir::Value distance) {
  switch (estimator) {
  case recipe::KlEstimator::K1:
    return distance;
  case recipe::KlEstimator::K2:
    return e.mul(e.mul(distance, distance), 0.5);
  case recipe::KlEstimator::K3:
    break;
  }
  return e.add(e.add(e.exp(e.neg(distance)), distance), -1);
}

} // namespace tessera::models
