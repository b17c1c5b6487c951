#include "parallelism/pipeline/Costs.h"

#include <cmath>

namespace tessera::pipeline {

double Costs::seconds(const Instruction &instruction, int rank) const {
  auto scale = [&](const Work &work) {
    const double rankShare =
        rankFactor.empty() ? 1.0 : rankFactor[size_t(rank)];
    const double share = microbatchFactor.empty()
                             ? 1.0
                             : microbatchFactor[size_t(work.microbatch)];
    return rankShare * share;
  };
  const Work &work = instruction.work;
  switch (instruction.op) {
  case Op::Forward:
    return stage(work.stage).forward * scale(work);
  case Op::Backward:
    return stage(work.stage).backward * scale(work);
  case Op::BackwardInput:
    return stage(work.stage).backwardInput * scale(work);
  case Op::BackwardWeight:
    return stage(work.stage).backwardWeight * scale(work);
  case Op::Overlap: {
    const Work &other = instruction.backward;
    return overlapFactor * (stage(work.stage).forward * scale(work) +
                            stage(other.stage).backward * scale(other));
  }
  default:
    return 0;
  }
}

const LinkCost &Costs::linkBetween(int from, int to) const {
  const auto found = links.find({from, to});
  return found == links.end() ? link : found->second;
}

static bool isCost(double value) { return std::isfinite(value) && value >= 0; }

static Status checkStage(const StageCost &cost, size_t stage) {
  const std::pair<const char *, double> numbers[] = {
      {"forward", cost.forward},
      {"backward", cost.backward},
      {"backward of inputs", cost.backwardInput},
      {"backward of weights", cost.backwardWeight},
      {"activation bytes", cost.activationBytes},
      {"weight bytes", cost.weightBytes},
      {"output bytes", cost.outputBytes},
      {"unshard", cost.unshard},
      {"reduction", cost.reduceGrad},
      {"optimizer", cost.optimizer}};
  for (const auto &[what, value] : numbers)
    if (!isCost(value))
      return Status::error("cost of stage {}: {} must be finite and not "
                           "negative, got {}",
                           stage, what, value);
  return Status::success();
}

static Status checkFactors(const std::vector<double> &factors, size_t wanted,
                           const char *what) {
  if (!factors.empty() && factors.size() != wanted)
    return Status::error("{} factors for {} {}; give one each or none",
                         factors.size(), wanted, what);
  for (double factor : factors)
    if (!isCost(factor))
      return Status::error(
          "a factor of {} must be finite and not negative, got {}", what,
          factor);
  return Status::success();
}

Status checkCosts(const Costs &costs, int ranks, int stages, int microbatches) {
  if (costs.stages.size() != 1 && costs.stages.size() != size_t(stages))
    return Status::error("costs of {} stages for a schedule of {}; give one "
                         "each or a single one for all",
                         costs.stages.size(), stages);
  for (size_t stage = 0; stage < costs.stages.size(); ++stage)
    TESSERA_RETURN_IF_ERROR(checkStage(costs.stages[stage], stage));
  TESSERA_RETURN_IF_ERROR(
      checkFactors(costs.rankFactor, size_t(ranks), "ranks"));
  TESSERA_RETURN_IF_ERROR(checkFactors(costs.microbatchFactor,
                                       size_t(microbatches), "microbatches"));
  std::vector<LinkCost> links{costs.link};
  for (const auto &[ends, link] : costs.links)
    links.push_back(link);
  for (const LinkCost &link : links)
    if (!isCost(link.latency) || !isCost(link.perByte))
      return Status::error("a link's latency and time per byte must be finite "
                           "and not negative, got {} and {}",
                           link.latency, link.perByte);
  if (!isCost(costs.overlapFactor))
    return Status::error(
        "the overlap factor must be finite and not negative, got {}",
        costs.overlapFactor);
  return Status::success();
}

} // namespace tessera::pipeline
