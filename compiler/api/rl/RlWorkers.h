// The rollout workers of `tessera rl`: on this machine and on others.
#pragma once
#include "compiler/api/ModelSource.h"
#include "compiler/api/rl/RlPrograms.h"
#include "runtime/rl/WorkerSampler.h"

namespace tessera {

/// The descriptor by which a rollout worker speaks with its learner, if that
/// has started it.
inline constexpr int kWorkerDescriptor = 3;

/// No worker yet, or null if none are asked for. From now on those on other
/// machines may come, and compile while this process does. `longest`: tokens of
/// a prompt at most.
StatusOr<std::unique_ptr<rl::WorkerSampler>>
prepareWorkers(const RlArguments &arguments, const ModelSource &source,
               int64_t longest);

/// Starts those on this machine, which run the artifact (`tessera
/// rollout-worker`), and waits until one can sample.
Status startWorkers(const RlArguments &arguments, const std::string &artifact,
                    unsigned threads, rl::WorkerSampler &workers);

} // namespace tessera
