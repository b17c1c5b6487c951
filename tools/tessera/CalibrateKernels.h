// The rates of the compiler's own kernels on this machine's cores.
#pragma once
#include "hardware/Host.h"
#include "runtime/support/Status.h"

namespace tessera {

struct KernelCalibration {
  std::array<planner::KernelRate, planner::kKernelKinds.size()> rates;
  double speedup = 1; ///< on all cores over one
  size_t kernels = 0; ///< that were measured
  /// The quartiles of predicted over measured time, of single kernels.
  double low = 0, high = 0;
};

/// Compiles small transformers of many shapes, times each of their kernels
/// alone, and fits the rates of each kind.
StatusOr<KernelCalibration> calibrateKernels();

} // namespace tessera
