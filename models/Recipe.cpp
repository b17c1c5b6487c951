// What a recipe and a model have to do with each other.
#include "models/Recipe.h"

namespace tessera::models {

Status checkRecipe(const Recipe &recipe, const ModelSpec &spec) {
  if (recipe.batch.sequence > spec.maxPositions)
    return Status::error("batch.sequence = {} is more than the model's {} "
                         "positions; lower it, or raise {} in config.json",
                         recipe.batch.sequence, spec.maxPositions,
                         spec.family == Family::Gpt2
                             ? "n_positions"
                             : "max_position_embeddings");
  return Status::success();
}

ModelSpec withRecipe(ModelSpec spec, const Recipe &recipe) {
  if (recipe.dropout.rate) {
    double rate = *recipe.dropout.rate;
    spec.attentionDropout = rate;
    // The reference drops only attention probabilities in the Llama family;
    // asking for a rate is asking for it where the architecture has a place.
    if (spec.family == Family::Gpt2)
      spec.embeddingDropout = spec.residualDropout = rate;
  }
  return spec;
}

} // namespace tessera::models
