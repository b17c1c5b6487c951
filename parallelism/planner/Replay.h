// Simulates a plan's pipeline instruction by instruction, for effects that the
// cost model's closed forms leave out (uneven stages, stragglers, uneven
// microbatches).
#pragma once
#include <vector>

#include "parallelism/pipeline/Simulate.h"
#include "parallelism/planner/Search.h"

namespace tessera::planner {

/// The disturbances of a replay.
struct Disturbance {
  /// Slow-down of each of the pipeline's ranks, 1.2 for a fifth; empty: none.
  std::vector<double> rankFactor;
  /// Factors of microbatches' compute are spread evenly over 1 ± this, in an
  /// order that is the same on every run; in [0, 1).
  double microbatchSpread = 0;
};

struct Replay {
  pipeline::Schedule schedule;
  pipeline::Simulation simulation;
  /// Of all microbatches, without data parallelism and the optimizer, by the
  /// cost model; simulation.makespan is the same by replay.
  double modelled = 0;
};

/// Replays the plan of `candidate`, which breaks no constraint. Errors: a
/// factor for a rank that does not exist, and schedules that cannot be
/// generated.
StatusOr<Replay> replay(const ModelShape &model, const Cluster &cluster,
                        const Workload &workload, const Candidate &candidate,
                        const Disturbance &disturbance = {});

} // namespace tessera::planner
