// The targets for which kernels are generated, as plain data.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The properties of a target from which skeletons choose tile sizes.
struct TileTarget {
  std::string
      name;      ///< "cpu:avx512bf16"; also names the nested module of kernels
  int64_t lanes; ///< f32 elements of a vector register
  int64_t rows, columns; ///< contraction register tile (m × n), f32 and bf16
  bool bf16Dot; ///< two-way bf16 dot products: operands staged as `pairs`, k in
                ///< steps of 2
  bool byteDot = false; ///< four-way dot products of unsigned and signed bytes
  int64_t sharedBytes;  ///< budget for a block's staged copies (half of a CPU
                        ///< core's L2)
  /// A block is many threads that share its tiles (`lanes` of them, unless a
  /// kernel says otherwise): contractions and attention have the skeletons of
  /// passes/kernels/gpu, and rows, columns and bf16Dot are unused.
  bool gpu = false;
  /// Warpgroups multiply (wgmma): tiles in which each has 64 whole rows.
  bool warpgroups = false;
  /// Registers hold matrices (AMX): bf16 matmuls stage both operands and
  /// multiply 32 × 32 tiles by tile.mma_staged.
  bool matrixTiles = false;
  /// The distance in bytes at which contractions of few rows prefetch weights
  /// into the L2 cache, in addition to prefetches into L1; 0: none.
  int64_t prefetchDistance = 8192;
  /// Streaming multiprocessors of the GPU for which grids are chosen; 0: a CPU.
  int64_t multiprocessors = 0;
  /// The processor features that a CPU's code requires, as /proc/cpuinfo spells
  /// them; runtime/support/CpuFeatures.cpp detects them.
  std::vector<std::string> features = {};
};

/// Targets by name; nullopt if the name is unknown.
std::optional<TileTarget> lookupTileTarget(std::string_view name);
/// All CPU targets, best first: a processor takes the first whose features it
/// has.
std::span<const TileTarget> cpuTileTargets();
/// Their names.
std::vector<std::string> cpuTargetNames();
/// The CUDA targets: "cuda:sm_80", "cuda:sm_90a".
std::span<const TileTarget> cudaTileTargets();
/// The names that a user may give, for help and errors.
std::string knownTargets();

} // namespace tessera
