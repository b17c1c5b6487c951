// How long a compiled program takes on a cluster, by replaying its launches.
#pragma once
#include "hardware/Cluster.h"
#include "mlir/IR/BuiltinOps.h"
#include "parallelism/planner/PlanFile.h"

namespace tessera {

/// Seconds of @train_step on one rank, by what they are of. What waits for a
/// collective is part of what waits.
struct StepSeconds {
  double forward = 0, backward = 0; ///< layers, of all microbatches
  double between = 0; ///< other ops between layers: embedding, head
  double outside = 0; ///< before the first layer and after the last one

  double total() const { return forward + backward + between + outside; }
};

/// Replays the execution plan of a rank: kernels one after another, started
/// collectives overlapped with them. A kernel takes its FLOPs at the sustained
/// clock in whole waves of blocks, or its bytes, and the time of a launch; a
/// collective takes its time on the links of its axes. Messages between stages
/// of a pipeline take none here, because it depends on the schedule.
StepSeconds replayStep(mlir::ModuleOp module, const planner::Cluster &cluster,
                       const planner::MeshPlan &plan);

} // namespace tessera
