// The recipe (runtime/recipe/Recipe.h, which the training executable reads too)
// as the compiler sees it, and what it has to do with a model.
#pragma once
#include "models/ModelSpec.h"
#include "runtime/recipe/Recipe.h"

namespace tessera::models {

using recipe::KvKind;
using recipe::loadRecipe;
using recipe::name;
using recipe::Normalize;
using recipe::OptimizerKind;
using recipe::parseRecipe;
using recipe::Pooling;
using recipe::Precision;
using recipe::printRecipe;
using recipe::Quant;
using recipe::Recipe;
using recipe::Recompute;
using recipe::ScheduleKind;

/// What a module is for: training, or generating from a cache of keys and
/// values (of an encoder, embedding), or measuring what linear layers read.
enum class Mode { Train, Infer, Calibrate };

/// What a recipe asks must be possible with the model: the sequence fits its
/// positions; the cache has pages for one sequence. Errors name both sides.
Status checkRecipe(const Recipe &recipe, const ModelSpec &spec,
                   Mode mode = Mode::Train);

/// Tokens that a sequence may have in inference: inference.context, or fewer
/// where the model has fewer positions.
int64_t inferenceContext(const ModelSpec &spec, const Recipe &recipe);
/// Numbers of sequences that a decode program is made for, ascending, up to
/// `most` itself: those between are padded, beyond eight by a half at
/// most.
std::vector<int64_t> decodeBuckets(int64_t most);

/// What an encoder's program is made for: texts of up to `tokens`, of which
/// `batch` run together.
struct EncodeBucket {
  int64_t batch, tokens;
  bool operator==(const EncodeBucket &) const = default;
};
/// One text and inference.batch of them, for 32 tokens, 64 and so on up to the
/// context; what is more than a page is whole pages.
std::vector<EncodeBucket> encodeBuckets(const ModelSpec &spec,
                                        const Recipe &recipe);

/// The model with the recipe's dropout in place of its own.
ModelSpec withRecipe(ModelSpec spec, const Recipe &recipe);

} // namespace tessera::models
