// Proves that a schedule can run and computes what a step must, whoever made
// it: a generator, `lower`, a person with a table.
#pragma once
#include "parallelism/pipeline/Schedule.h"

namespace tessera::pipeline {

/// Fails at the first fault, in one line with rank, position in the rank's list
/// and instruction. Holds afterwards:
/// - every microbatch runs F at each stage of its chain once, then B once or I
///   and W once (of a schedule of forwards alone F and nothing else), and no
///   instruction waits for ever for what another rank does;
/// - live activations of a rank never exceed `memory`, in microbatches at one
///   stage (0: no bound).
/// Of a lowered schedule also:
/// - what one rank produces and another reads is sent once, after it was
///   produced, and received once, before it is read; sends and receives between
///   two ranks have the same order; both may stand still until the transfer is
///   done (rendezvous), as may the ranks of a collective;
/// - a buffer changes hands when its owner needs it no more;
/// - stages that are unsharded anywhere are so wherever they compute; unless
///   there are forwards alone, each stage reduces its gradient once, after its
///   last backward, and each rank ends in its one OPT_STEP;
/// - ranks that hold replicas of the same stages reduce them in the same order.
Status check(const Schedule &schedule, int memory = 0);

/// Whether data-parallel copies of a pipeline, which run `a` and `b`, issue the
/// same collectives in the same order on each rank. Both are well formed.
Status checkSameCollectives(const Schedule &a, const Schedule &b);

} // namespace tessera::pipeline
