// The parts of `check`, one idea each. All require a well-formed schedule.
#pragma once
#include <vector>

#include "parallelism/pipeline/Schedule.h"

namespace tessera::pipeline {

/// "rank 1, position 7: 1B3", with which every fault begins.
std::string locate(const Schedule &schedule, int rank, size_t position);

/// F and backwards, and the peak of live activations.
Status checkCompute(const Schedule &schedule, int memory);
/// Sends and receives, against computation and against each other.
Status checkTransfers(const Schedule &schedule);
Status checkChannels(const Schedule &schedule);
Status checkBuffers(const Schedule &schedule);
/// UNSHARD, RESHARD, REDUCE_GRAD and OPT_STEP.
Status checkCollectives(const Schedule &schedule);
Status checkReplicas(const Schedule &schedule);
/// Runs the lists with blocking transfers.
Status checkProgress(const Schedule &schedule);

} // namespace tessera::pipeline
