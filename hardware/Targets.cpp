// The CPU and CUDA targets. Register tiles of CPUs leave room for the operands:
// of 32 zmm registers 24 are accumulators, three hold columns and one a
// broadcast element of a row; of 16 ymm registers 12, two and one.
#include "hardware/Targets.h"
#include "hardware/Gpus.h"

namespace tessera {

using Features = std::vector<std::string>;

static Features with(Features features, const Features &more) {
  features.insert(features.end(), more.begin(), more.end());
  return features;
}

std::span<const TileTarget> cpuTileTargets() {
  static const Features avx2 = {"avx2", "fma", "f16c"},
                        avx512 = with(avx2, {"avx512f", "avx512bw", "avx512dq",
                                             "avx512vl", "avx512_vnni"}),
                        avx512bf16 = with(avx512, {"avx512_bf16"});
  static const TileTarget targets[] = {
      {.name = "cpu:amx",
       .lanes = 16,
       .rows = 8,
       .columns = 48,
       .bf16Dot = false,
       .byteDot = true,
       .sharedBytes = 768 << 10,
       .matrixTiles = true,
       .features = with(avx512bf16, {"amx_tile", "amx_bf16"})},
      {.name = "cpu:avx512bf16",
       .lanes = 16,
       .rows = 8,
       .columns = 48,
       .bf16Dot = true,
       .byteDot = true,
       .sharedBytes = 768 << 10,
       // On Zen 4 prefetching into L2 too costs a tenth to a sixth of one
       // thread's bandwidth (bench/results/2026-11-23-zen4.md).
       .prefetchDistance = 0,
       .features = avx512bf16},
      {.name = "cpu:avx512",
       .lanes = 16,
       .rows = 8,
       .columns = 48,
       .bf16Dot = false,
       .byteDot = true,
       .sharedBytes = 768 << 10,
       .features = avx512},
      {.name = "cpu:avx2",
       .lanes = 8,
       .rows = 6,
       .columns = 16,
       .bf16Dot = false,
       .sharedBytes = 128 << 10,
       .features = avx2},
  };
  return targets;
}

// SMs of the GPU for which grids are chosen.
static int64_t countOf(std::string_view target) {
  return hardware::chipOfTarget(target)->sm->count;
}

// lanes is the threads of a block: a tile of row kernels has one to four
// elements of each.
std::span<const TileTarget> cudaTileTargets() {
  static const TileTarget targets[] = {
      // The limit of a block on sm_86 and sm_89, which run this code too.
      {.name = "cuda:sm_80",
       .lanes = 128,
       .rows = 0,
       .columns = 0,
       .bf16Dot = false,
       .sharedBytes = 94 << 10,
       .gpu = true,
       .multiprocessors = countOf("cuda:sm_80")},
      {.name = "cuda:sm_90a",
       .lanes = 128,
       .rows = 0,
       .columns = 0,
       .bf16Dot = false,
       .sharedBytes = 220 << 10,
       .gpu = true,
       .warpgroups = true,
       .multiprocessors = countOf("cuda:sm_90a")},
  };
  return targets;
}

std::vector<std::string> cpuTargetNames() {
  std::vector<std::string> names;
  for (const TileTarget &target : cpuTileTargets())
    names.push_back(target.name);
  return names;
}

std::string knownTargets() {
  std::string names = "cpu (all CPU variants)";
  for (std::span<const TileTarget> family :
       {cpuTileTargets(), cudaTileTargets()})
    for (const TileTarget &target : family)
      names += ", " + target.name;
  return names;
}

std::optional<TileTarget> lookupTileTarget(std::string_view name) {
  for (std::span<const TileTarget> family :
       {cpuTileTargets(), cudaTileTargets()})
    for (const TileTarget &target : family)
      if (target.name == name)
        return target;
  return std::nullopt;
}

} // namespace tessera
