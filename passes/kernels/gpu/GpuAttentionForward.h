// Attention forward, shared by its two kernels: a block owns a tile of queries
// of one head and walks over the tiles of keys that they see (Dao 2023,
// FlashAttention-2). Scores never leave registers. In one kernel all threads
// alternate between copying keys and values and multiplying them
// (GpuAttention.cpp); the other is warp-specialized (GpuAttentionPipeline.cpp).
#pragma once
#include "passes/kernels/attention/AttentionPlan.h"
#include "passes/kernels/gpu/GpuAttention.h"

namespace tessera::gpu {

class GpuForward {
public:
  GpuForward(GpuAttention &g, tile::KernelOp kernel,
             const ForwardOperands &operands, unsigned inputs)
      : g(g), e(g.e), kernel(kernel), o(operands), inputs(inputs) {}

protected:
  /// Finds the block's head and its queries.
  void locate();
  Source of(const AttentionOperand &operand, mlir::Value token, mlir::Value h,
            int64_t rows) {
    return g.head(kernel.getBuffers()[operand.argument], operand.view, token, h,
                  rows);
  }
  /// Maximum and sum before any key: of the head's sink, or null.
  Softmax beforeKeys();
  /// The scores of keys from `key` on, masked; the state before them is null
  /// for the first tile.
  Softmax softmax(mlir::Value scores, mlir::Value key, mlir::Value maximum,
                  mlir::Value sum);
  /// Divides by the sums and stores output and log-sum-exp.
  void finish(mlir::Value maximum, mlir::Value sum, mlir::Value output);

  GpuAttention &g;
  const TileBuilder &e;
  tile::KernelOp kernel;
  const ForwardOperands &o;
  unsigned inputs;
  mlir::Value head, kvHead, firstQuery;
};

/// The warp-specialized kernels, the likeliest to be fast first; none if TMA
/// cannot copy the operands, the target has no wgmma, or the queries would not
/// occupy two warpgroups.
llvm::SmallVector<tile::AttentionPlanAttr>
pipelinedAttentionKernels(const AttentionShape &shape,
                          const ForwardOperands &operands, mlir::Type element,
                          const TileTarget &target);
/// With `pingPong`, warpgroups alternate on the tensor cores
/// (FlashAttention-3).
void emitPipelinedAttention(GpuAttention &g, tile::KernelOp kernel,
                            const ForwardOperands &operands, unsigned inputs,
                            bool pingPong);

} // namespace tessera::gpu
