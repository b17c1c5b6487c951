// Seconds of a kernel on one GPU, from its shape, the data of the chip, and a
// few constants of such kernels. No constant is fitted to a run; bench/results
// has the errors.
#pragma once
#include <cstdint>

#include "hardware/Cluster.h"

namespace tessera::planner {

/// Element type of a matmul's operands. Fp32 has the peak of Bf16: it is for
/// devices that are described by their fp32 peak.
enum class Operand { Bf16, Fp8, Fp32 };

/// The GPU for which the others of `count` wait whenever they synchronize: the
/// mean of the smallest of so many sustained clocks, normally distributed.
Gpu slowestOf(const Gpu &gpu, int64_t count);

class KernelCost {
public:
  explicit KernelCost(const Gpu &gpu);

  /// C[m, n] = A[m, k] B[k, n], `groups` times with other operands. The best of
  /// a library's tiles: whole waves of tiles over the multiprocessors, each
  /// tile with a prologue and an epilogue in addition to its products, split-K
  /// if there are too few tiles, and at least the time to load operands from
  /// memory. `resultBytes` per element of C, read too if it accumulates.
  double gemm(int64_t m, int64_t n, int64_t k, int64_t groups = 1,
              Operand operand = Operand::Bf16, double resultBytes = 2) const;

  /// A kernel of so many blocks and FLOPs on tensor cores whose peak for its
  /// operands is `peak`: whole waves of blocks, each with a prologue and an
  /// epilogue, and products of 128 x 128 tiles. Without the launch.
  double blocks(double count, double flops, double peak) const;

  /// Attention that keeps its scores on the chip, `rows` queries of one head
  /// each with `keys` keys on average: two products per score forward, five
  /// backward, one exponential each.
  double attentionForward(double rows, double keys, int64_t headDim,
                          int64_t valueHeadDim, bool asynchronous = true) const;
  double attentionBackward(double rows, double keys, int64_t headDim,
                           int64_t valueHeadDim,
                           bool asynchronous = true) const;

  /// Memory-bound kernels: `bytes` read and written by `kernels` launches.
  double elementwise(double bytes, int64_t kernels = 1) const;

  const Gpu &gpu() const { return chip; }

private:
  double scoreSeconds(double scores, double flopsPerScore, double scalarOps,
                      bool asynchronous) const;

  Gpu chip;
};

} // namespace tessera::planner
