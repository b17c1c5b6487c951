#include "parallelism/pipeline/Check.h"

#include "parallelism/pipeline/Checks.h"
#include "parallelism/pipeline/Simulate.h"

namespace tessera::pipeline {

std::string locate(const Schedule &schedule, int rank, size_t position) {
  return fmt::format("rank {}, position {}: {}", rank, position,
                     toString(schedule.lists[size_t(rank)][position]));
}

Status checkProgress(const Schedule &schedule) {
  Costs costs;
  costs.asyncTransfers = !schedule.isLowered();
  costs.asyncCollectives = false;
  StatusOr<Simulation> run = simulate(schedule, costs);
  return run.ok() ? Status::success() : run.status();
}

Status check(const Schedule &schedule, int memory) {
  TESSERA_RETURN_IF_ERROR(checkForm(schedule));
  TESSERA_RETURN_IF_ERROR(checkCompute(schedule, memory));
  if (schedule.isLowered()) {
    TESSERA_RETURN_IF_ERROR(checkTransfers(schedule));
    TESSERA_RETURN_IF_ERROR(checkChannels(schedule));
    TESSERA_RETURN_IF_ERROR(checkBuffers(schedule));
    TESSERA_RETURN_IF_ERROR(checkCollectives(schedule));
    TESSERA_RETURN_IF_ERROR(checkReplicas(schedule));
  }
  return checkProgress(schedule);
}

} // namespace tessera::pipeline
