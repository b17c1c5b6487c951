// Attention backward, shared by its kernels: those in which all threads
// alternate between copying and multiplying (GpuAttentionGrad.cpp), and the
// warp-specialized ones (GpuAttentionGradPipeline.cpp). Both sum in the order
// of tiles, without atomics, so that their bits do not depend on timing. Three
// kernels:
//
//   delta = Σ_d dO ∘ O            a tile of queries
//   dV += Pᵀ dO, dK += dSᵀ Q      a tile of keys, over queries
//   dQ += dS K                    a tile of queries, over keys
//
// with P = exp(scale S − lse), S = Q Kᵀ, dP = dO Vᵀ, dS = P ∘ (dP − delta),
// where dK and dQ are multiplied by scale at the end. The second works on
// transposed scores, [key × query], so that Pᵀ and dSᵀ are left operands in the
// layout of their products. If registers do not hold both of its sums, it is
// two kernels.
#pragma once
#include "passes/kernels/attention/AttentionPlan.h"
#include "passes/kernels/gpu/GpuAttention.h"

namespace tessera::gpu {

/// A kernel's buffers by their meaning for the gradient; null if not used.
struct GradBuffers {
  mlir::Value query, key, value, output, lse, cotangent, delta;
  mlir::Value start;       ///< i32[]
  mlir::Value first, last; ///< i32 [B, T]
  mlir::Value dQuery, dKey, dValue;
};

class GpuGrad {
public:
  GpuGrad(GpuAttention &g, tile::KernelOp kernel, const BackwardOperands &o,
          const GradBuffers &buffers)
      : g(g), e(g.e), kernel(kernel), o(o), buffers(buffers) {}

  void emitDelta();

protected:
  /// As GpuAttention::locate, of a tile of keys or of queries, in a kernel
  /// whose warps have sixteen rows each.
  std::pair<mlir::Value, mlir::Value> locate(bool ofKeys, int64_t tile,
                                             bool lastFirst);
  Source of(mlir::Value buffer, const View &view, mlir::Value token,
            mlir::Value head, int64_t rows) {
    return g.head(buffer, view, token, head, rows);
  }
  /// Of `size` queries from `query` on.
  mlir::Value loadLse(mlir::Value head, mlir::Value query, int64_t size);
  mlir::Value loadDelta(mlir::Value head, mlir::Value query, int64_t size);
  /// S with its cap, if it has one.
  mlir::Value cap(mlir::Value scores);
  /// P of S from keys `key` and queries `query` on, masked; lse is a slice
  /// along dimension `queryDim` of S.
  mlir::Value weigh(mlir::Value scores, mlir::Value lse, mlir::Value query,
                    mlir::Value key, int64_t queryDim);
  /// dS of S, before it is masked, P and dP.
  mlir::Value scoreGradient(mlir::Value scores, mlir::Value weights,
                            mlir::Value change, mlir::Value delta,
                            int64_t queryDim);
  void storeScaled(mlir::Value sum, const Source &to);
  /// The sums of a tile of keys before the first query, one for each gradient
  /// that the kernel computes.
  llvm::SmallVector<mlir::Value> noKeySums() const {
    return llvm::SmallVector<mlir::Value>((buffers.dKey ? 1 : 0) +
                                              (buffers.dValue ? 1 : 0),
                                          g.zeros(g.sizes.keys, g.sizes.dim));
  }
  /// The sums of a tile of keys, dV before dK.
  void storeKeys(mlir::ValueRange sums, mlir::Value first, mlir::Value kvHead);

  GpuAttention &g;
  const TileBuilder &e;
  tile::KernelOp kernel;
  const BackwardOperands &o;
  const GradBuffers &buffers;

private:
  mlir::Value deltaAt(mlir::Value head);
};

/// Which gradient a kernel computes.
enum class GradPart { delta, keysAndValues, values, keys, queries };

/// The launches of a gradient, in their order.
llvm::SmallVector<GradPart> gradParts(tile::AttentionGradPlanAttr kernels);

// The plans, the likeliest to be fast first. Of warp-specialized kernels there
// are none unless the target has wgmma and TMA can copy all operands.
llvm::SmallVector<tile::AttentionGradPlanAttr>
pipelinedGradKernels(const AttentionShape &shape, const BackwardOperands &o,
                     mlir::Type element, const TileTarget &target);
llvm::SmallVector<tile::AttentionGradPlanAttr>
stagedGradKernels(const AttentionShape &shape, mlir::Type element,
                  const TileTarget &target);

// The kernels of dK and dV, as far as there are buffers for them, and of dQ.
void emitStagedKeys(GpuAttention &g, tile::KernelOp kernel,
                    const BackwardOperands &o, const GradBuffers &buffers);
void emitStagedQueries(GpuAttention &g, tile::KernelOp kernel,
                       const BackwardOperands &o, const GradBuffers &buffers);
void emitPipelinedKeys(GpuAttention &g, tile::KernelOp kernel,
                       const BackwardOperands &o, const GradBuffers &buffers);
void emitPipelinedQueries(GpuAttention &g, tile::KernelOp kernel,
                          const BackwardOperands &o,
                          const GradBuffers &buffers);

} // namespace tessera::gpu
