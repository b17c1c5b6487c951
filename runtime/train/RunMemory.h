// A run's memory: what is planned, and what is outside of the plan.
#pragma once
#include "runtime/train/TrainModel.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// Bytes, as they are just before the first step. The plan covers what programs
/// compute in: state, arena, inputs, outputs and scratch.
struct RunMemory {
  std::uint64_t planned = 0, state = 0; ///< state is a part of planned
  std::uint64_t program = 0;            ///< this program, its libraries, MPI
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
/// were resident before the model was opened.
StatusOr<RunMemory> measureRunMemory(const TrainModel &model,
                                     std::uint64_t baseBytes);

/// Bytes that a rank predicted before its first step, and its peak.
struct RankMemory {
  std::uint64_t planned = 0, outside = 0;
  std::uint64_t peak = 0; ///< the largest resident memory so far
};

/// The memory of all ranks, in order; all of them must call it at the same
/// time.
StatusOr<std::vector<RankMemory>> gatherMemory(TrainModel &model,
                                               const RunMemory &own);

/// A line about the rank that needs most memory, before the first step or, with
/// `isOver`, after the last one.
std::string describeRanks(std::span<const RankMemory> ranks, bool isOver);

/// {"ranks":[{"planned":…,"outside":…,"peak":…},…]}
std::string printMemory(std::span<const RankMemory> ranks);

/// The largest resident memory of this process so far; 0 if not known.
std::uint64_t peakResidentBytes();

} // namespace tessera
