// Simulates a schedule: when each instruction runs, how long ranks wait, and
// how much is live.
#pragma once
#include <cstdint>
#include <vector>

#include "parallelism/pipeline/Costs.h"
#include "parallelism/pipeline/Schedule.h"

namespace tessera::pipeline {

struct Span {
  double start = 0, end = 0;
};

/// A transfer between two ranks. `instruction` is the sender's SEND in its
/// list, or the instruction that produced the bytes if the lists have no
/// transfers.
struct Transfer {
  int from = 0, to = 0;
  int32_t instruction = 0;
  double bytes = 0;
  Span span;
};

struct RankUse {
  double busy = 0;      ///< time in F, B, I, W, OVERLAP and OPT_STEP
  double idle = 0;      ///< the makespan less busy: the rank's bubble
  int peakLive = 0;     ///< most microbatches at a stage between F and B, or W
  double peakBytes = 0; ///< of their activations
};

struct Simulation {
  double makespan = 0;
  /// The fraction of all ranks' time in which they do not compute, 0 to 1.
  double bubbleFraction = 0;
  std::vector<RankUse> ranks;
  /// The time of each instruction of each list; of a SEND, RECV or REDUCE_GRAD
  /// that of its transfer, also if it overlaps with compute.
  std::vector<std::vector<Span>> spans;
  std::vector<Transfer> transfers;
};

/// Runs the lists, lowered or not. A lowered schedule executes its SEND and
/// RECV; in the other each output is sent as soon as it is computed, which
/// requires asyncTransfers. A link carries one transfer at a time in each
/// direction, in the order of the sender's list. Errors: costs that do not fit
/// the schedule, and a deadlock, with a rank and the instruction at which it
/// waits.
StatusOr<Simulation> simulate(const Schedule &schedule,
                              const Costs &costs = {});

} // namespace tessera::pipeline
