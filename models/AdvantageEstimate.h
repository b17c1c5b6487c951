// Generalized advantage estimation (Schulman et al. 2016, arXiv 1506.02438) of
// the tokens of sampled answers, and the loss of the value head, as TRL's
// PPOTrainer has them. All is f32 [sequences, tokens].
#pragma once
#include "models/ModelBuilder.h"

namespace tessera::models {

/// 0 of tokens that are not learned. Nothing here has a gradient.
struct AdvantageEstimate {
  mlir::Value isTarget; ///< i1: something is learned
  mlir::Value advantages;
  mlir::Value old;     ///< values before the update
  mlir::Value returns; ///< what the value head learns
};

AdvantageEstimate estimateAdvantages(graph::Emitter &e,
                                     const recipe::Recipe::Policy &policy,
                                     const BatchValues &batch);

/// With mean 0 and standard deviation 1 over the tokens of `sums`
/// (ModelBuilder::advantageSums).
mlir::Value whitened(graph::Emitter &e, mlir::Value advantages,
                     mlir::Value sums);

/// Of each token: the loss, and the columns of runtime/train/Policy.h from
/// ValueColumn::valueLoss on.
struct ValueLoss {
  mlir::Value loss;
  llvm::SmallVector<mlir::Value> columns;
};
ValueLoss valueLoss(graph::Emitter &e, const recipe::Recipe::Policy &policy,
                    const AdvantageEstimate &estimate, mlir::Value values);

} // namespace tessera::models
