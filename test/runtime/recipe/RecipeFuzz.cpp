// libFuzzer target: whatever the bytes, a recipe is read or refused with one
// line, and what is read prints to a text that reads back equal.
#include <cstdint>
#include <cstdlib>

#include "runtime/recipe/Recipe.h"

using namespace tessera::recipe;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  auto recipe = parseRecipe(text, "fuzz");
  if (recipe.ok()) {
    auto again = parseRecipe(printRecipe(*recipe), "printed");
    require(again.ok() && *again == *recipe);
  } else {
    require(!recipe.message().empty());
    require(recipe.message().find('\n') == std::string::npos);
  }
  Recipe target;
  tessera::Status status = applyOverride(target, text);
  require(status.ok() || status.message().find('\n') == std::string::npos);
  return 0;
}
