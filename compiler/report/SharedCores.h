// When ranks that share the cores of one machine finish a program: each of
// them, with the rates that `tessera doctor --calibrate` measured.
#pragma once
#include <string>
#include <string_view>

#include "compiler/report/ProgramSteps.h"
#include "hardware/Host.h"

namespace tessera::report {

/// Of one run of a program.
struct HostPrediction {
  double seconds = 0; ///< until the last rank is done
  /// Of the mean rank, in seconds: running kernels, and blocked by collectives
  /// and other ranks.
  double kernels = 0, blocked = 0;
  std::uint64_t collectives = 0; ///< that the mean rank starts
  std::int64_t ranks = 1, threads = 1;
};

/// Which of the measured rates a kernel has.
planner::KernelKind kernelKindOf(const artifact::Kernel &kernel);

/// Simulates all ranks of an artifact for CPUs. Runnable threads get equal
/// parts of the cores: kernels have as many as the runtime starts, the
/// collectives of a rank one. A collective begins when its last member arrives,
/// waits for its latency, and then needs its members' cores. Loops whose count
/// is computed at run time are taken once. An error if the artifact has no code
/// for CPUs or more than kMostSimulatedSteps steps.
StatusOr<HostPrediction> predictOnHost(const artifact::Artifact &root,
                                       const planner::Host &host,
                                       std::string_view program);

/// A line for people: "predicted step: 57.3 ms …".
std::string printPrediction(const HostPrediction &prediction,
                            const planner::Host &host);

} // namespace tessera::report
