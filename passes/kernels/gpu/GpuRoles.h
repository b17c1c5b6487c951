// Shared by warp-specialized attention kernels (sm_90a): rings of tiles that
// one thread, the producer, fills by TMA, and products that warpgroups of 64
// rows each, the consumers, start and wait for.
#pragma once
#include "passes/kernels/gpu/GpuAttention.h"

namespace tessera::gpu {

/// Whether a tensor map can describe a view of bf16: the last dimension
/// contiguous, other strides whole 16 bytes.
bool hasBoxes(const View &view);

/// Tiles in shared memory, and the ring with their barriers.
struct Fed {
  Staged tiles;
  mlir::Value ring;
};

class GpuRoles {
public:
  /// A kernel whose consumers have `rows` rows in total.
  GpuRoles(GpuAttention &g, tile::KernelOp kernel, int64_t rows);

  /// `stages` tiles of `rows` rows of a head.
  Fed feed(int64_t stages, int64_t rows) const;
  /// Ends the kernel with the code of the producer and the consumers.
  void emit(llvm::function_ref<void()> produce,
            llvm::function_ref<void()> consume) const;

  // The producer's.
  /// Fills the next stage from a source.
  void bring(const Fed &to, const Source &from) const;

  // The consumers'.
  /// Waits for the next stage.
  mlir::Value await(const Fed &fed) const;
  /// Releases that stage.
  void release(const Fed &fed) const;
  /// Starts sum + lhs × rhs.
  mlir::Value start(mlir::Value lhs, mlir::Value rhs, mlir::Value sum) const;
  /// Waits for the sum, until at most the last `pending` products are in
  /// flight.
  mlir::Value wait(mlir::Value sum, int64_t pending = 0) const;
  void turn(tile::Turn turn) const;

private:
  GpuAttention &g;
  const TileBuilder &e;
  int64_t consumers;
};

} // namespace tessera::gpu
