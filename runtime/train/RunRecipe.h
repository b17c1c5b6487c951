// The artifact's recipe during a run: keys that were compiled into the program
// are fixed; hyperparameters and intervals can be set.
#pragma once
#include "runtime/recipe/Recipe.h"
#include "runtime/train/Hyper.h"

#include <array>
#include <string>
#include <string_view>

namespace tessera {

struct RunRecipe {
  recipe::Recipe values;
  bool hasMomentum = false; ///< SGD keeps a buffer only if compiled with some

  /// What goes into the state tensor `hyper`.
  std::array<float, kHyperSlots> hyper() const;
  /// The recipe.yaml of the run. A folder whose name is not UTF-8 has no place
  /// in YAML and is left out; it was given on the command line.
  std::string print() const;
};

/// Reads an artifact's recipe.
StatusOr<RunRecipe> parseRunRecipe(std::string_view yaml);

/// An error if what a checkpoint has of an adapter, trained with `before`,
/// would be left out or mean something else in a program of `now`.
Status checkSameAdapter(const std::string &checkpoint,
                        const recipe::Recipe::Adapter &before,
                        const recipe::Recipe::Adapter &now);

/// An error if they have different codes of the weights that adapters are
/// trained over: the checkpoint's would be read as others.
Status checkSameBase(const std::string &checkpoint,
                     const recipe::Recipe &before, const recipe::Recipe &now);

/// Applies "optimizer.lr=3e-4". A key that is compiled in, or that the compiled
/// optimizer and schedule do not read, is refused together with the command
/// that recompiles; an unknown one with the nearest key.
Status setRecipeKey(RunRecipe &recipe, std::string_view assignment,
                    std::string_view rebuildCommand);

} // namespace tessera
