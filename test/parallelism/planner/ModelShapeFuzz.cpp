// libFuzzer target: whatever the bytes, the planner reads a config.json or
// refuses it with one line, and counts of what is read are positive.
#include <cmath>
#include <cstdlib>

#include "parallelism/planner/ModelShape.h"

using namespace tessera::planner;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  auto shape = parseModelShape(text, "fuzz");
  if (!shape.ok()) {
    require(!shape.message().empty());
    require(shape.message().find('\n') == std::string::npos);
    return 0;
  }
  require(shape->parameters() > 0 && shape->activeParameters() > 0);
  require(std::isfinite(shape->flopsPerToken(shape->maxPositions)));
  require(shape->heads % shape->kvHeads == 0);
  require(shape->expertsPerToken <= shape->experts);
  return 0;
}
