// The CPU targets. Register tiles leave room for the operands: on 32 zmm
// registers 28 accumulators, two columns of B and a broadcast of A; on 16 ymm
// registers 12, two and one.
#include "passes/kernels/Targets.h"
#include "llvm/ADT/STLExtras.h"

namespace tessera {

llvm::ArrayRef<TileTarget> cpuTileTargets() {
  static const TileTarget targets[] = {
      {"cpu:amx", 16, 8, 48, false, 768 << 10, false, false, true},
      {.name = "cpu:avx512bf16",
       .lanes = 16,
       .rows = 8,
       .columns = 48,
       .bf16Dot = true,
       .sharedBytes = 768 << 10,
       // On Zen 4 asking for the second cache, too, costs a tenth to a sixth of
       // what one thread reads (bench/results/2026-11-23-zen4.md).
       .farAhead = 0},
      {"cpu:avx512", 16, 8, 48, false, 768 << 10},
      {"cpu:avx2", 8, 6, 16, false, 128 << 10},
  };
  return targets;
}

// lanes is the threads of a block: a tile of row kernels has one to four
// elements of each.
llvm::ArrayRef<TileTarget> cudaTileTargets() {
  static const TileTarget targets[] = {
      // What a block may have on sm_86 and sm_89, which run this code too.
      {"cuda:sm_80", 128, 0, 0, false, 94 << 10, true, false},
      {"cuda:sm_90a", 128, 0, 0, false, 220 << 10, true, true},
  };
  return targets;
}

std::optional<TileTarget> lookupTileTarget(llvm::StringRef name) {
  for (llvm::ArrayRef<TileTarget> family :
       {cpuTileTargets(), cudaTileTargets()})
    for (const TileTarget &target : family)
      if (target.name == name)
        return target;
  return std::nullopt;
}

} // namespace tessera
