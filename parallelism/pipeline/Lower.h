// From what is computed to what is executed: transfers, parameters, gradients
// and buffers become instructions.
#pragma once
#include "parallelism/pipeline/Costs.h"
#include "parallelism/pipeline/Schedule.h"

namespace tessera::pipeline {

struct LowerOptions {
  /// Stages whose parameters a rank holds gathered at the same time, 0 if
  /// parameters are not sharded (below ZeRO 3). One more than is computed with
  /// hides the gather of the next.
  int unsharded = 0;
  /// What decides when things happen, and so where transfers stand:
  /// asyncTransfers too.
  Costs costs;
};

/// Adds to a schedule of compute:
/// - SEND and RECV for what crosses ranks: the send behind what produces it,
///   the receive, where transfers run beside compute, before the instruction
///   that the other rank computes at that time, which may take more slots,
///   and otherwise behind it;
/// - UNSHARD as early and RESHARD as late as `unsharded` allows;
/// - REDUCE_GRAD of each stage behind its last backward, OPT_STEP at the end,
///   unless there are forwards alone;
/// - buffers: as few slots a rank as are ever needed at once.
///
/// All lists are cut from one order of events, in which a transfer or a sum
/// over replicas is one event of several ranks. So the first event that has not
/// happened can always happen, and lists run even where a transfer makes both
/// ranks stand still until it is done. Where it does not, SEND and RECV only
/// begin it; who reads a buffer, or is given it next, waits. Errors: schedules
/// that fail `check` or are lowered already, fewer gathered stages than one
/// instruction needs.
StatusOr<Schedule> lower(const Schedule &compute,
                         const LowerOptions &options = {});

} // namespace tessera::pipeline
