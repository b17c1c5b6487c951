// Replays a schedule: when does each instruction run, what waits for what, and
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

/// Bytes on their way between two ranks. `instruction` is the sender's SEND in
/// its list, or the instruction that produced them where no transfers are
/// listed.
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
  /// Share of all ranks' time that no rank computes in, 0 to 1.
  double bubbleFraction = 0;
  std::vector<RankUse> ranks;
  /// Of each instruction of each list; of a SEND, RECV or REDUCE_GRAD the time
  /// in which the bytes move, also where that runs beside compute.
  std::vector<std::vector<Span>> spans;
  std::vector<Transfer> transfers;
};

/// Runs the lists, lowered or not. A lowered one executes its SEND and RECV; in
/// the other each output leaves as soon as it is there, which wants
/// asyncTransfers. A link carries one transfer at a time and direction, in the
/// order of the sender's list. Errors: costs that do not fit the schedule, and
/// a deadlock, which names a rank and the instruction that it waits at.
StatusOr<Simulation> simulate(const Schedule &schedule,
                              const Costs &costs = {});

} // namespace tessera::pipeline
