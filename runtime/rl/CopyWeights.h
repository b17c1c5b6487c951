// Weights from the model that learns to the model that samples.
#pragma once
#include "runtime/recipe/AdapterRecipe.h"
#include "runtime/weights/MergeFactors.h"
#include "runtime/weights/ModelState.h"

#include <optional>

namespace tessera::rl {

/// An adapter of the learner (LoRA, DoRA), which the sampler has in its
/// weights.
struct LearnedAdapter {
  recipe::AdapterRecipe recipe;
  bool isTransposed = false; ///< the model's matrices are [in, out]
};

/// A tensor of the learner, and the one that it becomes. A matrix of a
/// quantized base becomes a dequantized one.
struct WeightPair {
  const StateTensor *from, *to;
  const StateTensor *scales = nullptr; ///< of a quantized matrix; null: none
  /// The factors of its adapter; null: none.
  const StateTensor *in = nullptr, *out = nullptr;
  const StateTensor *magnitude = nullptr; ///< of its rows (DoRA); null: none
  FactorShape factors = {};
  bool isTrained = true; ///< not constant while an adapter is trained
};

/// Every parameter of `sampler` with that of `learner` that has its name and
/// shape, in a type that converts (CopyTensor.h) or quantized; an error names
/// the first that lacks one. The models must outlive the pairs.
StatusOr<std::vector<WeightPair>>
pairWeights(const ModelState &learner, const ModelState &sampler,
            const std::optional<LearnedAdapter> &adapter);

/// Copies all of them, or only those that are trained; on all processors if
/// both models are in the host's memory.
Status copyWeights(std::span<const WeightPair> pairs, bool onlyTrained,
                   ModelState &learner, ModelState &sampler);

} // namespace tessera::rl
