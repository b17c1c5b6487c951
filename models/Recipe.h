// The recipe (runtime/recipe/Recipe.h, which the training executable reads too)
// in the compiler, and its relation to a model.
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

/// The purpose of a module: training; inference (generation with a KV cache, or
/// embedding); or calibration (measuring inputs of linear layers).
enum class Mode { Train, Infer, Calibrate };

/// Checks that the recipe fits the model: the sequence fits its positions, and
/// the KV cache has pages for one sequence. Errors name both sides.
Status checkRecipe(const Recipe &recipe, const ModelSpec &spec,
                   Mode mode = Mode::Train);

/// Maximum tokens of a sequence in inference: inference.context, limited by the
/// model's positions.
int64_t inferenceContext(const ModelSpec &spec, const Recipe &recipe);
/// Batch sizes of the decode programs, ascending, up to `most`. Other sizes are
/// padded to the next; padding above eight is at most a half.
std::vector<int64_t> decodeBuckets(int64_t most);
/// Tokens of the prefill programs, ascending, up to `chunk`. What is left of a
/// prompt is padded to the next.
std::vector<int64_t> prefillBuckets(const ModelSpec &spec, int64_t chunk);

/// The shape of an encoder's or a reward model's program: `batch` sequences of
/// up to `tokens`.
struct EncodeBucket {
  int64_t batch, tokens;
  bool operator==(const EncodeBucket &) const = default;
};
/// Batches of 1 and inference.batch, for 32 tokens, 64 and so on up to the
/// context; sizes of encoders above a page are multiples of a page.
std::vector<EncodeBucket> encodeBuckets(const ModelSpec &spec,
                                        const Recipe &recipe);

/// The model with the recipe's dropout instead of its own, its adapter, and the
/// head of its task.
ModelSpec withRecipe(ModelSpec spec, const Recipe &recipe);

} // namespace tessera::models
