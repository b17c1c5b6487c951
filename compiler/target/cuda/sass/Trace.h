// The time line of one warp: its instructions in the order in which one of its
// threads executes them, and when each may issue.
#pragma once
#include "compiler/target/cuda/sass/Thread.h"

namespace tessera::sass {

/// In cycles of the SM's clock.
struct Latencies {
  double l1 = 0, global = 0; ///< of a load that hits L1, and of all others
  double shared = 29; ///< Jia et al. (2018); the same since, within cycles
  /// Of other instructions that set a scoreboard: conversions, shuffles,
  /// special functions. They take 14 to 40.
  double other = 20;
  std::size_t linesOfL1 = 16;      ///< that are kept for one warp
  std::uint64_t most = 30'000'000; ///< instructions that are followed
};

/// A loop: instructions [first, last], by a branch from the last to the first.
struct Loop {
  std::size_t first = 0, last = 0;
  std::size_t depth = 1;      ///< 1: in no other loop
  std::uint64_t trips = 0;    ///< in all: how often `first` was executed
  std::uint64_t waits = 0;    ///< times that the warp waited for memory in it
  std::uint64_t inFlight = 0; ///< most bytes of a thread at such a wait
};

struct WarpTrace {
  std::string
      unknown; ///< why it could not be followed to its end; empty: it was
  /// Branches on values out of memory: taken if they lead forward, so that what
  /// they guard is not counted.
  std::uint64_t assumed = 0;
  double cycles = 0;       ///< until the warp's exit
  double memoryCycles = 0; ///< of these waiting for global memory
  std::uint64_t waits = 0; ///< how often it did
  std::uint64_t instructions = 0, branches = 0, barriers = 0;
  std::uint64_t multifunction = 0, tensorTiles = 0;
  double tensorCycles = 0;
  /// Of one thread, from global memory: into registers, and by cp.async.
  std::uint64_t loadBytes = 0, copyBytes = 0, storeBytes = 0;
  std::uint64_t missBytes = 0; ///< of the first two those that miss L1
  std::uint64_t bulkBytes = 0; ///< that its thread made mbarriers expect
  double byteCycles = 0;       ///< sum of bytes times cycles in flight
  std::vector<Loop> loops;     ///< those that were repeated
};

/// Follows the first thread of a warp, which is `around.thread`.
WarpTrace trace(const std::vector<Decoded> &code, const Surroundings &around,
                const Latencies &latencies);

} // namespace tessera::sass
