// The latency bounds of all kernels of a program.
#pragma once
#include "compiler/target/cuda/sass/LatencyBound.h"
#include "compiler/target/cuda/sass/MachineCode.h"

namespace tessera::sass {

/// Launches of one kernel that differ in nothing that its bound depends on.
struct PlannedLaunch {
  const artifact::Launch *launch = nullptr;
  std::uint64_t blocks = 0; ///< as of parametersOf
  double times = 0;         ///< in one run of the program
};

/// By kernel; variants are launched as the kernel that they are of.
using PlannedLaunches = std::map<std::uint32_t, std::vector<PlannedLaunch>>;
PlannedLaunches launchesOf(const artifact::DeviceCode &code,
                           const artifact::Program &program);

/// Of a kernel's mean launch; what is not a time is that of the launches that
/// take longest together.
KernelBound meanBound(const artifact::Kernel &kernel,
                      const std::vector<PlannedLaunch> &launches,
                      const Function &function, const hardware::Chip &chip);

} // namespace tessera::sass
