// What attention kernels whose threads have roles share (sm_90a): rings of
// tiles that one thread, the producer, has brought by the copy engine, and
// products that warpgroups of 64 rows each, the consumers, start and wait for.
#pragma once
#include "passes/kernels/gpu/GpuAttention.h"

namespace tessera::gpu {

/// Whether a tensor map can describe a view of bf16: the last dimension
/// contiguous, other strides whole 16 bytes.
bool hasBoxes(const View &view);

/// Tiles in shared memory, and the ring that says which are there.
struct Fed {
  Staged tiles;
  mlir::Value ring;
};

class GpuRoles {
public:
  /// A kernel whose consumers have `rows` rows together.
  GpuRoles(GpuAttention &g, tile::KernelOp kernel, int64_t rows);

  /// `stages` tiles of `rows` rows of a head.
  Fed feed(int64_t stages, int64_t rows) const;
  /// Ends the kernel: the code of both roles.
  void emit(llvm::function_ref<void()> produce,
            llvm::function_ref<void()> consume) const;

  // The producer's.
  /// The next stage, from there.
  void bring(const Fed &to, const Source &from) const;

  // The consumers'.
  /// The next stage, once it is there.
  mlir::Value await(const Fed &fed) const;
  /// That stage is not needed any more.
  void release(const Fed &fed) const;
  /// Starts sum + lhs × rhs.
  mlir::Value start(mlir::Value lhs, mlir::Value rhs, mlir::Value sum) const;
  /// The sum, once no more than the last `pending` products are in flight.
  mlir::Value wait(mlir::Value sum, int64_t pending = 0) const;
  void turn(tile::Turn turn) const;

private:
  GpuAttention &g;
  const TileBuilder &e;
  int64_t consumers;
};

} // namespace tessera::gpu
