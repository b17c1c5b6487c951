// The recipe (runtime/recipe/Recipe.h, which the training executable reads too)
// as the compiler sees it, and what it has to do with a model.
#pragma once
#include "models/ModelSpec.h"
#include "runtime/recipe/Recipe.h"

namespace tessera::models {

using recipe::loadRecipe;
using recipe::name;
using recipe::OptimizerKind;
using recipe::parseRecipe;
using recipe::Precision;
using recipe::printRecipe;
using recipe::Recipe;
using recipe::Recompute;
using recipe::ScheduleKind;

/// What a recipe asks must be possible with the model: the sequence fits its
/// positions. Errors name both sides.
Status checkRecipe(const Recipe &recipe, const ModelSpec &spec);

/// The model with the recipe's dropout in place of its own.
ModelSpec withRecipe(ModelSpec spec, const Recipe &recipe);

} // namespace tessera::models
