#include "parallelism/planner/Replay.h"

#include <numeric>

#include "parallelism/pipeline/Generate.h"
#include "runtime/support/SplitMix64.h"

namespace tessera::planner {
namespace {

/// One cost a stage, from one microbatch's times there.
pipeline::StageCost stageCost(const PassTimes &times) {
  pipeline::StageCost cost;
  cost.forward = times.forward.total();
  cost.backward = times.backward.total();
  cost.backwardWeight = times.weight;
  cost.backwardInput = cost.backward - times.weight;
  return cost;
}

/// 1 - spread to 1 + spread in equal steps, shuffled.
std::vector<double> microbatchFactors(int64_t count, double spread) {
  std::vector<double> factors(static_cast<size_t>(count), 1.0);
  if (spread == 0 || count < 2)
    return factors;
  for (size_t i = 0; i < factors.size(); ++i)
    factors[i] += spread * (2 * double(i) / double(count - 1) - 1);
  SplitMix64 random(0);
  for (size_t i = factors.size() - 1; i > 0; --i)
    std::swap(factors[i], factors[random() % (i + 1)]);
  return factors;
}

} // namespace

StatusOr<Replay> replay(const ModelShape &model, const Cluster &cluster,
                        const Workload &workload, const Candidate &candidate,
                        const Disturbance &disturbance) {
  const ParallelPlan &plan = candidate.plan;
  if (disturbance.rankFactor.size() > size_t(plan.pipe))
    return Status::error("--straggler {}: the pipeline has ranks 0 to {}",
                         disturbance.rankFactor.size() - 1, plan.pipe - 1);
  CostModel costModel(model, cluster, workload);
  pipeline::Costs costs;
  costs.stages.clear();
  for (const PassTimes &stage :
       costModel.stageTimes(plan, costModel.price(plan)))
    costs.stages.push_back(stageCost(stage));
  double bytes = 2 * double(plan.micro) * double(workload.sequence) *
                 double(model.hidden) / double(plan.context * plan.tensor);
  for (pipeline::StageCost &stage : costs.stages)
    stage.outputBytes = bytes;
  CollectiveCost collectives(cluster);
  costs.link.perByte = collectives.send(bytes, plan.stageRanks()) / bytes;
  costs.asyncTransfers = workload.overlap.pipe;
  costs.rankFactor = disturbance.rankFactor;
  if (!costs.rankFactor.empty())
    costs.rankFactor.resize(size_t(plan.pipe), 1.0);
  int64_t batches = candidate.cost.microbatches;
  costs.microbatchFactor =
      microbatchFactors(batches, disturbance.microbatchSpread);

  auto schedule = pipeline::generate(
      name(plan.schedule), {int(plan.pipe), int(batches), int(plan.interleave)},
      costs);
  if (!schedule.ok())
    return schedule.status();
  auto simulation = pipeline::simulate(*schedule, costs);
  if (!simulation.ok())
    return simulation.status();
  const StepCost &cost = candidate.cost;
  return Replay{schedule.take(), simulation.take(),
                cost.perRank.total() + cost.uneven + cost.bubble + cost.send};
}

} // namespace tessera::planner
