// The resolved recipe that an artifact carries, as a run sees it: what was
// compiled into the program is fixed, hyperparameters and cadences can be set.
// (The compiler's own reader, with its schema and its line numbers, is
// models/Recipe.h; the runtime includes nothing of the compiler.)
#pragma once
#include "runtime/support/Status.h"
#include "runtime/train/Hyper.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

struct RunRecipe {
  std::array<float, kHyperSlots> hyper = {};
  // Compiled in.
  std::string optimizer = "adamw", schedule = "cosine", compute = "fp32";
  int64_t accumulate = 1, micro = 1, sequence = 1;
  bool hasMomentum = false; ///< SGD keeps a buffer only if compiled with some
  // Of the run.
  int64_t seed = 1337;
  std::string trainData, evalData; ///< directories; empty: none
  int64_t evalEvery = 100, evalBatches = 8;
  int64_t checkpointEvery = 100, checkpointKeep = 3;

  float &slot(HyperSlot which) { return hyper[std::size_t(which)]; }
  float slot(HyperSlot which) const { return hyper[std::size_t(which)]; }
  uint64_t totalSteps() const { return uint64_t(slot(HyperSlot::total)); }
};

/// Reads an artifact's recipe. Unknown keys are kept out of it and are no
/// error: the compiler that resolved it checked them.
StatusOr<RunRecipe> parseRunRecipe(std::string_view yaml);

/// Applies "optimizer.lr=3e-4". A key that is compiled in, or that the compiled
/// optimizer and schedule do not read, is refused together with the command
/// that recompiles; an unknown one with the nearest key.
Status setRecipeKey(RunRecipe &recipe, std::string_view assignment,
                    std::string_view rebuildCommand);

/// `yaml` with the values of `recipe` in place of its own: the recipe.yaml of
/// the run, readable by the compiler again.
StatusOr<std::string> printRunRecipe(std::string_view yaml,
                                     const RunRecipe &recipe);

} // namespace tessera
