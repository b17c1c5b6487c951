// What differs between two recipes.
#pragma once
#include "runtime/recipe/Recipe.h"

namespace tessera::recipe {

/// One line for each key of different values: "optimizer.lr: 0.0003 before,
/// 0.0001 now".
std::vector<std::string> listChanges(const Recipe &before, const Recipe &now);

} // namespace tessera::recipe
