// A plan's pipeline, replayed instruction by instruction: what the cost model's
// closed forms leave out (uneven stages, stragglers, uneven microbatches).
#pragma once
#include <vector>

#include "parallelism/planner/Search.h"
#include "parallelism/pipeline/Simulate.h"

namespace tessera::planner {

/// What goes wrong in a replay.
struct Disturbance {
  /// Slow-down of each of the pipeline's ranks, 1.2 for a fifth; empty: none.
  std::vector<double> rankFactor;
  /// Microbatches' shares of compute spread evenly over 1 ± this, in an order
  /// that is the same on every run; in [0, 1).
  double microbatchSpread = 0;
};

struct Replay {
  pipeline::Schedule schedule;
  pipeline::Simulation simulation;
  /// Of all microbatches, without data parallelism and the optimizer, by the
  /// cost model; simulation.makespan is the same by replay.
  double modelled = 0;
};

/// Replays the plan of `candidate`, which breaks no constraint. Errors: a rank
/// factor for a rank that is not there, and what the scheduler cannot make.
StatusOr<Replay> replay(const ModelShape &model, const Cluster &cluster,
                        const Workload &workload, const Candidate &candidate,
                        const Disturbance &disturbance = {});

} // namespace tessera::planner
