#include "runtime/recipe/RecipeChanges.h"
#include "runtime/recipe/RecipeSchema.h"

#include <fmt/format.h>

namespace tessera::recipe {

std::vector<std::string> listChanges(const Recipe &before, const Recipe &now) {
  Recipe first = before, second = now; // the schema points into them
  const std::vector<Field> old = schema(first), fresh = schema(second);
  std::vector<std::string> changes;
  for (size_t i = 0; i < old.size(); ++i)
    if (const std::string from = printed(old[i].slot),
        to = printed(fresh[i].slot);
        from != to)
      changes.push_back(
          fmt::format("{}: {} before, {} now", old[i].key, from, to));
  return changes;
}

} // namespace tessera::recipe
