// The targets that kernels are tiled for, as plain data.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// What a skeleton needs to know of a target to choose tile sizes.
struct TileTarget {
  std::string
      name;      ///< "cpu:avx512bf16"; also names the nested module of kernels
  int64_t lanes; ///< f32 elements of a vector register
  int64_t rows, columns; ///< contraction register tile (m × n), f32 and bf16
  bool bf16Dot; ///< two-way bf16 dot products: operands staged as `pairs`, k in
                ///< steps of 2
  int64_t sharedBytes; ///< budget for a block's staged copies (half of a CPU
                       ///< core's L2)
  /// A block is many threads that share its tiles (`lanes` of them, unless a
  /// kernel says otherwise): contractions and attention have the skeletons of
  /// passes/kernels/gpu, and rows, columns and bf16Dot mean nothing.
  bool gpu = false;
  /// Warpgroups multiply (wgmma): tiles in which each has 64 whole rows.
  bool warpgroups = false;
  /// Registers hold matrices (AMX): products of bf16 are staged on both sides
  /// and multiplied 32 × 32 by tile.mma_staged.
  bool matrixTiles = false;
  /// How many bytes ahead few rows ask for streams of weights into the second
  /// cache, besides those that they ask for into the first; 0: not.
  int64_t prefetchDistance = 8192;
  /// Streaming multiprocessors of the GPU that grids are chosen for; 0: a CPU.
  int64_t multiprocessors = 0;
};

/// Targets by name; nullopt where the name is unknown.
std::optional<TileTarget> lookupTileTarget(std::string_view name);
/// All CPU targets, best first: "cpu:amx", "cpu:avx512bf16", "cpu:avx512",
/// "cpu:avx2".
std::span<const TileTarget> cpuTileTargets();
/// The CUDA targets: "cuda:sm_80", "cuda:sm_90a".
std::span<const TileTarget> cudaTileTargets();

} // namespace tessera
