#include "parallelism/pipeline/Generate.h"

#include <vector>

#include "parallelism/pipeline/ListScheduler.h"
#include "parallelism/pipeline/Simulate.h"

namespace tessera::pipeline {

/// A larger number is a mistake: 2³⁰ instructions are 40 GB.
static constexpr int64_t maxWork = int64_t(1) << 28;

static bool fillsRanks(const Policy &policy, const Shape &shape) {
  for (const Phase &phase : policy.phases)
    for (int rank = 0; rank < shape.ranks; ++rank)
      if (phase.count(policy.placement, shape, rank) < 0)
        return false;
  return true;
}

Status checkShape(const Policy &policy, const Shape &shape) {
  if (shape.ranks < 1 || shape.microbatches < 1 || shape.chunks < 1)
    return Status::error("{}: requires at least one rank, microbatch and "
                         "chunk, got {}, {} and {}",
                         policy.name, shape.ranks, shape.microbatches,
                         shape.chunks);
  if (shape.chunks < policy.minChunks || shape.chunks > policy.maxChunks)
    return Status::error("{}: {} chunks per rank; expected {}", policy.name,
                         shape.chunks,
                         policy.minChunks == policy.maxChunks
                             ? fmt::format("{}", policy.minChunks)
                             : fmt::format("at least {}", policy.minChunks));
  if (int64_t(shape.ranks) * shape.chunks > maxWork / shape.microbatches)
    return Status::error("{}: {} ranks, {} chunks and {} microbatches are more "
                         "than {} instructions; give fewer",
                         policy.name, shape.ranks, shape.chunks,
                         shape.microbatches, maxWork);
  if (policy.placement == Placement::Bidirectional &&
      (shape.ranks % 2 || shape.microbatches % 2))
    return Status::error("{}: requires an even number of ranks and of "
                         "microbatches, got {} and {}",
                         policy.name, shape.ranks, shape.microbatches);
  if (!fillsRanks(policy, shape)) {
    Shape least = shape;
    while (!fillsRanks(policy, least))
      least.microbatches +=
          policy.placement == Placement::Bidirectional ? 2 : 1;
    return Status::error("{}: {} microbatches (batch.accumulate) do not fill "
                         "{} ranks; give at least {}",
                         policy.name, shape.microbatches, shape.ranks,
                         least.microbatches);
  }
  return Status::success();
}

Status checkStages(int64_t stages, int64_t blocks) {
  if (blocks >= stages)
    return Status::success();
  return Status::error("a pipeline of {} stages requires at least as many "
                       "blocks, the model has {}",
                       stages, blocks);
}

static Schedule emptySchedule(const Policy &policy, const Shape &shape) {
  Schedule schedule;
  schedule.name = policy.name;
  schedule.ranks = shape.ranks;
  schedule.microbatches = shape.microbatches;
  schedule.replicas = policy.placement == Placement::Bidirectional ? 2 : 1;
  schedule.stages = shape.ranks * shape.chunks * schedule.replicas;
  schedule.lists.resize(size_t(shape.ranks));
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const int along = stage % shape.ranks;
    const bool back =
        policy.placement != Placement::Loop && stage / shape.ranks % 2 == 1;
    schedule.placement.push_back(back ? shape.ranks - 1 - along : along);
  }
  return schedule;
}

/// Which wait is long enough for a W depends on the instructions after it, so
/// several thresholds are tried. So is the order of equal times without
/// transfers, which is the papers': the first ready instruction is not always
/// the best.
static std::vector<StatusOr<Schedule>> attempts(const Policy &policy,
                                                const Shape &shape,
                                                const Costs &costs, int memory,
                                                const Schedule &empty) {
  static constexpr double patiences[] = {1.0, 0.5, 0.0};
  const Costs equal;
  std::vector<StatusOr<Schedule>> made;
  for (const Costs *each : {&costs, &equal})
    for (double patience : patiences) {
      ListScheduler attempt(policy, shape, *each, memory, patience, empty);
      const Status status = attempt.run();
      made.push_back(status.ok() ? StatusOr<Schedule>(attempt.take()) : status);
      if (!policy.splitBackward)
        break;
    }
  return made;
}

/// The first error if all of them fail.
static StatusOr<Schedule> shortest(std::vector<StatusOr<Schedule>> made,
                                   Costs costs) {
  costs.asyncTransfers = true; // lists of compute have no blocking transfers
  StatusOr<Schedule> *best = nullptr;
  double least = 0;
  for (StatusOr<Schedule> &each : made) {
    if (!each.ok())
      continue;
    StatusOr<Simulation> run = simulate(*each, costs);
    if (!run.ok())
      return run.status();
    if (best && run->makespan >= least)
      continue;
    best = &each;
    least = run->makespan;
  }
  return best ? std::move(*best) : std::move(made.front());
}

StatusOr<Schedule> generate(const Policy &policy, const Shape &shape,
                            const Costs &costs, int memory) {
  TESSERA_RETURN_IF_ERROR(checkShape(policy, shape));
  const Schedule empty = emptySchedule(policy, shape);
  TESSERA_RETURN_IF_ERROR(
      checkCosts(costs, empty.ranks, empty.stages, empty.microbatches));
  return shortest(attempts(policy, shape, costs, memory, empty), costs);
}

} // namespace tessera::pipeline
