// The process that samples for a learner in another one.
#pragma once
#include "runtime/infer/PagedModel.h"
#include "runtime/rl/WorkerMessages.h"

namespace tessera::rl {

/// Says what it samples with, then takes weights and requests from the learner,
/// and answers, until the learner closes its end. `state` has the weights of
/// the model that `model` runs.
Status runRolloutWorker(Connection &learner, PagedModel &model,
                        ModelState &state);

} // namespace tessera::rl
