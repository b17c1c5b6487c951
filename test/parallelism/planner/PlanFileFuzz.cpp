// libFuzzer target: whatever the bytes, a plan file is read or refused with one
// line, and what is read is a mesh and prints as it was read.
#include <cstdlib>

#include "parallelism/planner/PlanFile.h"

using namespace tessera;
using namespace tessera::planner;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  StatusOr<PlanFile> plan = parsePlanFile(text, "fuzz");
  if (!plan.ok()) {
    require(!plan.message().empty());
    require(plan.message().find('\n') == std::string::npos);
    return 0;
  }
  require(plan->plan.devices() >= 1 && plan->plan.devices() <= 1 << 20);
  require(recipe::parseRecipe("", "fuzz", recipeKeys(plan->plan)).ok());
  meshText(plan->plan);
  StatusOr<PlanFile> again = parsePlanFile(printPlanFile(*plan), "fuzz");
  require(again.ok() && again->plan == plan->plan);
  return 0;
}
