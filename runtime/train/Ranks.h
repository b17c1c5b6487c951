// Training as one of several ranks: which rank writes, when all stop, how such
// a run begins and ends, and how ranks share a machine.
#pragma once
#include "runtime/train/MeshModel.h"
#include "runtime/train/Train.h"

namespace tessera {

/// Operations that succeed and do nothing: for ranks that leave the run's files
/// to another.
FileOperations &noFiles();

/// Whether as many ranks were started as the artifact at `path` was compiled
/// for; the error says how to start them.
Status checkLaunch(const comm::Launch &launch, const std::string &path);

/// Threads of this rank: its part of the processors, which the ranks of a
/// machine share; at least 1.
unsigned threadsPerRank(const comm::Launch &launch);

/// runTraining of all ranks: rank 0 writes the run directory and prints, and
/// all stop after the same step when one gets a signal.
StatusOr<TrainSummary> runTrainingOnRanks(MeshModel &model,
                                          const comm::Launch &launch,
                                          TrainOptions options);

} // namespace tessera
