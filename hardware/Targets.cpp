// The CPU and CUDA targets. Register tiles of CPUs leave room for the operands:
// of 32 zmm registers 24 are accumulators, three hold columns and one a
// broadcast element of a row; of 16 ymm registers 12, two and one.
#include "hardware/Targets.h"

namespace tessera {

std::span<const TileTarget> cpuTileTargets() {
  static const TileTarget targets[] = {
      {.name = "cpu:amx",
       .lanes = 16,
       .rows = 8,
       .columns = 48,
       .bf16Dot = false,
       .sharedBytes = 768 << 10,
       .matrixTiles = true},
      {.name = "cpu:avx512bf16",
       .lanes = 16,
       .rows = 8,
       .columns = 48,
       .bf16Dot = true,
       .sharedBytes = 768 << 10,
       // On Zen 4 prefetching into L2 too costs a tenth to a sixth of one
       // thread's bandwidth (bench/results/2026-11-23-zen4.md).
       .prefetchDistance = 0},
      {.name = "cpu:avx512",
       .lanes = 16,
       .rows = 8,
       .columns = 48,
       .bf16Dot = false,
       .sharedBytes = 768 << 10},
      {.name = "cpu:avx2",
       .lanes = 8,
       .rows = 6,
       .columns = 16,
       .bf16Dot = false,
       .sharedBytes = 128 << 10},
  };
  return targets;
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
       .multiprocessors = 108}, // an A100
      {.name = "cuda:sm_90a",
       .lanes = 128,
       .rows = 0,
       .columns = 0,
       .bf16Dot = false,
       .sharedBytes = 220 << 10,
       .gpu = true,
       .warpgroups = true,
       .multiprocessors = 132}, // an H100 or H200 SXM
  };
  return targets;
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
