// libFuzzer target: whatever the bytes, config.json is read or refused with
// one line, and what is read keeps the promises of ModelSpec.
#include <cmath>
#include <cstdlib>

#include "models/HfConfig.h"
#include "models/Rope.h"

using namespace tessera::models;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  auto spec = parseHfConfig(text, "fuzz");
  if (!spec.ok()) {
    require(!spec.message().empty());
    require(spec.message().find('\n') == std::string::npos);
    return 0;
  }
  require(spec->heads > 0 && spec->kvHeads > 0 && spec->headDim > 0);
  require(spec->heads % spec->kvHeads == 0);
  require(parameterCount(*spec) > 0);
  require(spec->windows.empty() ||
          int64_t(spec->windows.size()) == spec->layers);
  for (LayerParts parts : spec->kindsOfLayers())
    require(layerParameters(*spec, parts).size() >=
            (parts.sparse ? 10U : 6U)); // Phi-3 fuses some
  if (const auto &mixer = spec->stateSpace) {
    require(int64_t(mixer->recurrent.size()) == spec->layers);
    require(mixer->groups > 0 && mixer->heads % mixer->groups == 0);
    require(mixer->kernel > 0 && mixer->state > 0 && mixer->headDim > 0);
  }
  if (spec->moe) {
    require(int64_t(spec->moe->sparse.size()) == spec->layers);
    require(spec->moe->chosen <= spec->moe->experts);
    require(activeParameterCount(*spec) > 0);
  }
  if (spec->rope) {
    require(spec->rotaryWidth() > 0 && spec->rotaryWidth() % 2 == 0);
    RopeFrequencies rope = ropeFrequencies(*spec, spec->maxPositions);
    require(int64_t(rope.inverseFrequencies.size()) == spec->rotaryWidth() / 2);
    for (double each : rope.inverseFrequencies)
      require(std::isfinite(each));
  }
  return 0;
}
