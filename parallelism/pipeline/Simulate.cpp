#include "parallelism/pipeline/Simulate.h"

#include <algorithm>

#include "parallelism/pipeline/Engine.h"

namespace tessera::pipeline {

void Engine::measureMemory(int rank) {
  RankUse &use = result.ranks[size_t(rank)];
  int live = 0;
  double held = 0;
  auto keep = [&](const Work &work) {
    use.peakLive = std::max(use.peakLive, ++live);
    held += costs.stage(work.stage).activationBytes;
    use.peakBytes = std::max(use.peakBytes, held);
  };
  auto drop = [&](double bytes, bool last) {
    held -= bytes;
    live -= last;
  };
  if (schedule.forwardOnly) // keeps nothing
    return;
  for (const Instruction &each : schedule.lists[size_t(rank)]) {
    if (!isCompute(each.op))
      continue;
    const StageCost &cost = costs.stage(each.work.stage);
    if (each.op == Op::Forward || each.op == Op::Overlap)
      keep(each.work);
    if (each.op == Op::Overlap)
      drop(costs.stage(each.backward.stage).activationBytes, true);
    if (each.op == Op::Backward)
      drop(cost.activationBytes, true);
    if (each.op == Op::BackwardInput)
      drop(cost.activationBytes - cost.weightBytes, false);
    if (each.op == Op::BackwardWeight)
      drop(cost.weightBytes, true);
  }
}

void Engine::summarize() {
  result.ranks.resize(size_t(schedule.ranks));
  double busy = 0;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const InstructionList &list = schedule.lists[size_t(rank)];
    const std::vector<Span> &spans = result.spans[size_t(rank)];
    RankUse &use = result.ranks[size_t(rank)];
    for (size_t k = 0; k < list.size(); ++k) {
      result.makespan = std::max(result.makespan, spans[k].end);
      if (isCompute(list[k].op) || list[k].op == Op::OptimizerStep)
        use.busy += spans[k].end - spans[k].start;
    }
    measureMemory(rank);
    busy += use.busy;
  }
  for (RankUse &use : result.ranks)
    use.idle = result.makespan - use.busy;
  if (result.makespan > 0)
    result.bubbleFraction = 1 - busy / (result.makespan * schedule.ranks);
}

StatusOr<Simulation> simulate(const Schedule &schedule, const Costs &costs) {
  TESSERA_RETURN_IF_ERROR(checkForm(schedule));
  TESSERA_RETURN_IF_ERROR(checkCosts(costs, schedule.ranks, schedule.stages,
                                     schedule.microbatches));
  if (!schedule.isLowered() && !costs.asyncTransfers)
    return Status::error("the lists have no SEND and RECV, which blocking "
                         "transfers require; lower the schedule first");
  Engine engine(schedule, costs);
  TESSERA_RETURN_IF_ERROR(engine.run());
  return engine.take();
}

} // namespace tessera::pipeline
