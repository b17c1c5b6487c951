// The costs of instructions, for generating and simulating schedules. Times are
// in seconds, or in any other unit throughout.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "parallelism/pipeline/Schedule.h"

namespace tessera::pipeline {

/// The costs of one microbatch at one stage.
struct StageCost {
  double forward = 1;
  double backward = 2;
  double backwardInput = 1;
  double backwardWeight = 1;
  double activationBytes = 1; ///< kept from F to the end of B, or of I
  double weightBytes = 1;     ///< the part of them that W still needs after I
  double outputBytes = 0;     ///< sent to the next stage, and back as gradient
  double unshard = 0;
  double reduceGrad = 0;
  double optimizer = 0; ///< of a rank: the sum over its stages
};

/// α and β of a point-to-point link: n bytes occupy it for n·perByte and arrive
/// `latency` later.
struct LinkCost {
  double latency = 0;
  double perByte = 0;
};

struct Costs {
  /// One for each stage of the schedule, or a single one for all.
  std::vector<StageCost> stages{StageCost{}};
  /// Slow-down of each rank's compute (1.2: a straggler); empty is all 1.
  std::vector<double> rankFactor;
  /// Imbalance: each microbatch's factor of compute; empty is all 1.
  std::vector<double> microbatchFactor;
  LinkCost link;
  /// Links that differ from the others, by (from, to).
  std::map<std::pair<int, int>, LinkCost> links;
  /// The time of an OVERLAP relative to that of F and then B.
  double overlapFactor = 1;
  /// A transfer overlaps with compute, and the instruction that reads it waits;
  /// otherwise both ranks block until it is done (rendezvous).
  bool asyncTransfers = true;
  /// UNSHARD and REDUCE_GRAD overlap with compute, on an engine of their own.
  bool asyncCollectives = true;

  const StageCost &stage(int stage) const {
    return stages.size() == 1 ? stages.front() : stages[size_t(stage)];
  }
  /// The time of an instruction of `rank` that is not a transfer.
  double seconds(const Instruction &instruction, int rank) const;
  const LinkCost &linkBetween(int from, int to) const;
};

/// Checks that the lists have the schedule's sizes and every number is finite
/// and not negative.
Status checkCosts(const Costs &costs, int ranks, int stages, int microbatches);

} // namespace tessera::pipeline
