// From a schedule of compute to one that can be executed: transfers,
// parameters, gradients and buffers become instructions.
#pragma once
#include "parallelism/pipeline/Costs.h"
#include "parallelism/pipeline/Schedule.h"

namespace tessera::pipeline {

struct LowerOptions {
  /// The most stages whose gathered parameters a rank holds at one time; 0 if
  /// parameters are not sharded (below ZeRO 3). With one more than an
  /// instruction needs, the gather of the next stage overlaps.
  int unsharded = 0;
  /// Decide when instructions run, and so the positions of transfers.
  Costs costs;
};

/// Adds to a schedule of compute:
/// - SEND and RECV for values that cross ranks. The send follows the producer.
///   If transfers overlap with compute, the receive precedes the instruction
///   that the other rank runs at that time, which may need more slots;
///   otherwise it follows it;
/// - UNSHARD as early and RESHARD as late as `unsharded` allows;
/// - REDUCE_GRAD of each stage after its last backward, OPT_STEP at the end,
///   unless there are only forwards;
/// - buffers: as few slots per rank as are needed at one time.
///
/// All lists are taken from one order of events, in which a transfer or a sum
/// over replicas is one event of several ranks. So the first event that has not
/// happened can always happen, and lists run even if a transfer blocks both
/// ranks until it is done. If it does not block, SEND and RECV only start it;
/// the instruction that reads a buffer, or gets it next, waits. Errors:
/// schedules that fail `check` or are lowered already, fewer gathered stages
/// than one instruction needs.
StatusOr<Schedule> lower(const Schedule &compute,
                         const LowerOptions &options = {});

} // namespace tessera::pipeline
