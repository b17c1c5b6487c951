#include "compiler/api/LocalTargets.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "hardware/Targets.h"
#include "runtime/support/PeakFlops.h"
#include "llvm/ADT/StringRef.h"
#include <cstdlib>

using namespace tessera;

static std::string withPrefix(llvm::StringRef name) {
  return (name.starts_with("cpu:") ? name : "cpu:" + name).str();
}

// Where the bf16 dot-product instruction is slow, code that upcasts is faster;
// for f32 both are the same code.
static std::string localCpuTarget() {
  if (const char *name = std::getenv("TESSERA_CPU"); name && *name)
    return withPrefix(name);
  for (const TileTarget &target : cpuTileTargets()) {
    bool isSlow = target.bf16Dot && !target.matrixTiles && !bf16DotPays();
    if (!isSlow && cpu::missingFeatures(target.name).empty())
      return target.name;
  }
  return "cpu";
}

std::vector<std::string> tessera::localTargets(std::string_view device) {
  llvm::StringRef name(device);
  if (name.consume_front("cuda-emu"))
    return {name.consume_front(":") ? ("cuda:" + name).str() : "cuda:sm_80"};
  if (name.starts_with("cuda"))
    return {"cuda:sm_80", "cuda:sm_90a"};
  if (name.starts_with("cpu:"))
    return {name.str()};
  return {localCpuTarget()};
}
