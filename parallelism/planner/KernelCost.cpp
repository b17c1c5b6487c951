#include "parallelism/planner/KernelCost.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::planner {
namespace {

struct Tile {
  int64_t rows, columns;
};
constexpr Tile tiles[] = {{256, 128}, {128, 256}, {128, 128},
                          {128, 64},  {64, 128},  {64, 64}};
constexpr int64_t splits[] = {1, 2, 4, 8};

/// Operands of a tile are read from shared memory once for each of its rows or
/// columns: the fraction of tensor-core cycles that this costs is this constant
/// over the tile's sides. A 256 x 128 tile keeps 91 %, a 64 x 64 one 80 %.
constexpr double operandCost = 8;
/// Cycles for loading a tile's first operands and storing its result: about two
/// memory latencies and an epilogue.
constexpr double tileCycles = 1500;
/// Fraction of the data sheet's bandwidth that a copy reaches.
constexpr double memoryShare = 0.87;
/// Special-function and fp32 results of a multiprocessor in a cycle (all chips
/// since sm_80).
constexpr double exponentialsPerCycle = 16;
constexpr double scalarsPerCycle = 128;
/// fp32 operations per score besides the exponential: scale, running maximum
/// and sum; backward also the difference to delta and the product with P.
constexpr double forwardScalars = 4;
constexpr double backwardScalars = 8;
/// The fraction of exponentials' time for which asynchronous tensor cores still
/// wait.
constexpr double asynchronousResidue = 0.35;
/// The backward pass keeps five operands in shared memory where the forward
/// pass keeps two in registers, and sums dQ across blocks.
constexpr double backwardShare = 0.80;
/// The fraction of the peak that mma.sync, the instruction of sm_80, reaches on
/// sm_90 (62.9 % on average: Luo et al., arXiv 2402.13499 and 2501.12084).
constexpr double synchronousShare = 0.63;

/// The mean of the largest of `count` standard normal values: the integral of
/// the probability that it is above x, less that it is below -x.
double meanOfLargest(int64_t count) {
  constexpr double step = 0.02, end = 8;
  double sum = 0;
  for (double x = step / 2; x < end; x += step) {
    double above = std::erfc(x / std::sqrt(2.0)) / 2;
    sum +=
        1 - std::pow(1 - above, double(count)) - std::pow(above, double(count));
  }
  return sum * step;
}

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

} // namespace

Gpu slowestOf(const Gpu &gpu, int64_t count) {
  Gpu slowest = gpu;
  if (gpu.clockSpread > 0 && count > 1)
    slowest.sustainedClock *= 1 - gpu.clockSpread * meanOfLargest(count);
  return slowest;
}

KernelCost::KernelCost(const Gpu &gpu) : chip(gpu) {}

double KernelCost::elementwise(double bytes, int64_t kernels) const {
  return bytes / (chip.memoryBandwidth * memoryShare) +
         double(kernels) * chip.launch;
}

double KernelCost::gemm(int64_t m, int64_t n, int64_t k, int64_t groups,
                        Operand operand, double resultBytes) const {
  if (m == 0 || n == 0 || k == 0 || groups == 0)
    return 0;
  bool fp8 = operand == Operand::Fp8 && chip.fp8 > 0;
  double clock = chip.clock * chip.sustainedClock * (fp8 ? chip.fp8Clock : 1);
  double processors = double(chip.multiprocessors);
  double perCycle = (fp8 ? chip.fp8 : chip.bf16) / (processors * chip.clock);
  double best = std::numeric_limits<double>::infinity();
  for (const Tile &tile : tiles) {
    double share =
        1 /
        (1 + operandCost * (1 / double(tile.rows) + 1 / double(tile.columns)));
    double count = double(groups) * double(ceilDiv(m, tile.rows)) *
                   double(ceilDiv(n, tile.columns));
    for (int64_t split : splits) {
      if (split > 1 &&
          (count * double(split) > 2 * processors || k < 512 * split))
        break;
      double rounds = std::ceil(count * double(split) / processors);
      double cycles = 2 * double(tile.rows) * double(tile.columns) * double(k) /
                          double(split) / (perCycle * share) +
                      tileCycles;
      double seconds = rounds * cycles / clock;
      if (split > 1) // partial sums in fp32 go out and come back
        seconds += elementwise(double(groups) * double(m) * double(n) * 8 *
                               double(split));
      best = std::min(best, seconds);
    }
  }
  double operandBytes = fp8 ? 1 : operand == Operand::Fp32 ? 4 : 2;
  double bytes =
      double(groups) * (operandBytes * (double(m) + double(n)) * double(k) +
                        resultBytes * double(m) * double(n));
  return std::max(best, bytes / (chip.memoryBandwidth * memoryShare)) +
         chip.launch;
}

double KernelCost::blocks(double count, double flops, double peak) const {
  if (count <= 0 || flops <= 0)
    return 0;
  constexpr double share = 1 / (1 + operandCost * (1 / 128.0 + 1 / 128.0));
  double processors = double(chip.multiprocessors);
  double perCycle = peak / (processors * chip.clock);
  double cycles = flops / count / (perCycle * share) + tileCycles;
  return std::ceil(count / processors) * cycles /
         (chip.clock * chip.sustainedClock);
}

double KernelCost::scoreSeconds(double scores, double flopsPerScore,
                                double scalarOps, bool asynchronous) const {
  double perCycle = chip.bf16 / (double(chip.multiprocessors) * chip.clock);
  if (chip.asynchronous && !asynchronous)
    perCycle *= synchronousShare;
  double products = flopsPerScore / perCycle;
  double scalars = 1 / exponentialsPerCycle + scalarOps / scalarsPerCycle;
  double cycles = chip.asynchronous && asynchronous
                      ? std::max(products, scalars) +
                            asynchronousResidue * std::min(products, scalars)
                      : products + scalars;
  return scores * cycles /
         (double(chip.multiprocessors) * chip.clock * chip.sustainedClock);
}

double KernelCost::attentionForward(double rows, double keys, int64_t headDim,
                                    int64_t valueHeadDim,
                                    bool asynchronous) const {
  return scoreSeconds(rows * keys, 2 * double(headDim + valueHeadDim),
                      forwardScalars, asynchronous) +
         chip.launch;
}

double KernelCost::attentionBackward(double rows, double keys, int64_t headDim,
                                     int64_t valueHeadDim,
                                     bool asynchronous) const {
  // Scores, dP, dV, dK, dQ: three over headDim, two over valueHeadDim.
  return scoreSeconds(rows * keys, 2 * double(3 * headDim + 2 * valueHeadDim),
                      backwardScalars, asynchronous) /
             backwardShare +
         2 * chip.launch;
}

} // namespace tessera::planner
