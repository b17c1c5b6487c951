// Checks that a schedule can run and computes a whole step, whether a
// generator, `lower` or a person with a CSV file made it.
#pragma once
#include "parallelism/pipeline/Schedule.h"

namespace tessera::pipeline {

/// An error at the first fault, in one line with rank, position in the rank's
/// list and instruction. Holds afterwards:
/// - every microbatch runs F at each stage of its chain once, then B once or I
///   and W once (in a schedule of forwards only, F and nothing else), and no
///   instruction waits forever for another rank;
/// - live activations of a rank never exceed `memory`, in microbatches at one
///   stage (0: no bound).
/// Of a lowered schedule also:
/// - a value that one rank produces and another reads is sent once, after it
///   was produced, and received once, before it is read; sends and receives
///   between two ranks have the same order; both may block until the transfer
///   is done (rendezvous), as may the ranks of a collective;
/// - a buffer is reused only when its owner no longer needs it;
/// - stages that are unsharded anywhere are so wherever they compute; unless
///   there are only forwards, each stage reduces its gradient once, after its
///   last backward, and each rank ends in its one OPT_STEP;
/// - ranks that hold replicas of the same stages reduce them in the same order.
Status check(const Schedule &schedule, int memory = 0);

/// Whether data-parallel copies of a pipeline, which run `a` and `b`, issue the
/// same collectives in the same order on each rank. Both are well formed.
Status checkSameCollectives(const Schedule &a, const Schedule &b);

} // namespace tessera::pipeline
