// The process that samples for a learner in another one.
#pragma once
#include "runtime/infer/PagedModel.h"
#include "runtime/rl/WorkerMessages.h"

#include <condition_variable>
#include <thread>

namespace tessera::rl {

enum class WorkerEnd {
  over, ///< the learner needs no worker any more
  lost, ///< it closed its end without saying so, or cannot be reached
};

/// Says what it samples with, then takes weights and requests from the learner,
/// and answers, until the learner ends. `state` has the weights of the model
/// that `model` runs. An error if the learner refuses this worker, or if it
/// cannot sample.
StatusOr<WorkerEnd> runRolloutWorker(Connection &learner, PagedModel &model,
                                     ModelState &state);

/// Tells the learner every so often that this process runs, also while it
/// compiles.
class Heartbeat {
public:
  Heartbeat(Connection &learner, std::chrono::milliseconds interval);
  ~Heartbeat();

private:
  std::mutex mutex;
  std::condition_variable ended;
  bool isOver = false;
  std::thread thread;
};

} // namespace tessera::rl
