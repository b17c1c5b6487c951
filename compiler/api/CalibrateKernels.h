// The rates of the compiler's own kernels on this machine's cores.
#pragma once
#include "hardware/Host.h"
#include "runtime/bench/RateFit.h"
#include "runtime/support/Status.h"
#include <array>
#include <vector>

namespace tessera {

struct KernelCalibration {
  std::array<planner::KernelRate, planner::kKernelKinds.size()> rates;
  double speedup = 1; ///< on all cores over one
  size_t kernels = 0; ///< that were measured
  /// The quartiles of predicted over measured time, of single kernels.
  double low = 0, high = 0;
};

/// Times of kernels by kind; of planner::KernelKind::matmul at least one.
using KernelSamples =
    std::array<std::vector<bench::RateSample>, planner::kKernelKinds.size()>;

/// Rates of each kind; a kind without samples has those of matmul.
KernelCalibration fitKernels(const KernelSamples &samples, double speedup);

/// Compiles small transformers of many shapes, times each of their kernels
/// alone, and fits the rates of each kind.
StatusOr<KernelCalibration> calibrateKernels();

} // namespace tessera
