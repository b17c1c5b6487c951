// When each step of a program runs: the programs of all shares together, one
// rank of each, with one stream for kernels and one for started collectives.
#pragma once
#include <cstdint>
#include <vector>

#include "compiler/report/ProgramSteps.h"

namespace tessera::report {

/// Seconds from the program's start.
struct StepEvent {
  std::uint32_t step = 0; ///< the step's number
  bool collective = false;
  double start = 0, duration = 0;
};

struct Lane {
  const artifact::Share *share = nullptr;
  std::vector<StepEvent> events; ///< by start
  double busy = 0;               ///< seconds in kernels, copies and fills
  double exposed = 0; ///< seconds of waiting for collectives and other ranks
  double collectives = 0; ///< seconds of its collectives, overlapped or not
};

struct ProgramTimeline {
  double makespan = 0;
  std::vector<Lane> lanes; ///< one for each share
  /// Iterations of loops whose events were left out; their time counts.
  std::uint64_t leftOut = 0;
};

/// Unrolled steps of all shares that are simulated at most.
inline constexpr std::uint64_t kMostSimulatedSteps = 4'000'000;
/// Iterations of a loop of which events are kept.
inline constexpr std::uint64_t kShownIterations = 4;

/// A collective starts when its last member has arrived; a permutation's
/// receiver waits for its sender only. Kernels do not slow down while they
/// overlap. An error if the program has too many steps.
/// Collectives of ranks in other stages of a pipeline need not be alike.
StatusOr<ProgramTimeline> simulate(const ReportInput &input,
                                   std::string_view program);

/// {"makespan":…,"lanes":[{"name":…,"events":[[start, duration, step],…]}]} in
/// nanoseconds; two lanes for a share if it has collectives.
Json timelineJson(const ProgramTimeline &timeline);

/// Chrome trace of programs one below the other, which Perfetto opens.
std::string
traceText(const ReportInput &input,
          const std::vector<std::pair<std::string, ProgramTimeline>> &programs);

} // namespace tessera::report
