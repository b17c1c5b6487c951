// A run's memory: what is planned, and what is outside of the plan.
#pragma once
#include "runtime/train/TrainModel.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// A model in the process of a run that is not trained, such as the one that
/// samples answers.
struct OtherModel {
  std::string what; ///< for display
  const TrainModel *model;
};

/// Bytes, as they are just before the first step. The plan covers what programs
/// compute in: state, arena, inputs, outputs and scratch.
struct RunMemory {
  std::uint64_t planned = 0; ///< of all models
  std::uint64_t state = 0;   ///< of the trained one, a part of planned
  std::vector<std::pair<std::string, std::uint64_t>> others; ///< parts of it
  std::uint64_t program = 0;    ///< this program, its libraries, MPI
  std::uint64_t loaded = 0;     ///< the kernels' code, artifact, data, batches
  std::uint64_t checkpoint = 0; ///< a buffer, still to come

  /// Resident in addition to the execution plan's memory. The run's largest
  /// peak is the sum of both, except for a few pages of code that were not
  /// needed yet.
  std::uint64_t outside() const { return program + loaded + checkpoint; }
  /// Two lines for display.
  std::string describe() const;
};

/// Sends large messages between all ranks, so that the message layer has
/// allocated its buffers when memory is measured. All ranks must call it at the
/// same time; does nothing for one rank.
Status fillMessageBuffers(TrainModel &model);

/// Measures this process: what is resident now and not planned. `baseBytes`
/// were resident before the models were opened.
StatusOr<RunMemory> measureRunMemory(const TrainModel &model,
                                     std::span<const OtherModel> others,
                                     std::uint64_t baseBytes);

/// Bytes that a rank predicted before its first step, and its peak.
struct MeasuredMemory {
  std::uint64_t planned = 0, outside = 0;
  std::uint64_t peak = 0; ///< the largest resident memory so far
};

/// The memory of all ranks, in order; all of them must call it at the same
/// time.
StatusOr<std::vector<MeasuredMemory>> gatherMemory(TrainModel &model,
                                                   const RunMemory &own);

/// A line about the rank that needs most memory, before the first step or, with
/// `isOver`, after the last one.
std::string describeRanks(std::span<const MeasuredMemory> ranks, bool isOver);

/// {"ranks":[{"planned":…,"outside":…,"peak":…},…]}
std::string printMemory(std::span<const MeasuredMemory> ranks);

/// The largest resident memory of this process so far; 0 if not known.
std::uint64_t peakResidentBytes();

} // namespace tessera
