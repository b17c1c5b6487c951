// What `tessera rollout-worker` does after its options are parsed: samples for
// a learner.
#pragma once
#include "compiler/Driver.h"
#include "runtime/support/Status.h"
#include <functional>
#include <string>
#include <string_view>

namespace tessera {

struct RemoteWorkerOptions {
  std::string connect;    ///< of the learner, "HOST:PORT"
  std::string secretFile; ///< as readRolloutSecret has it
  std::string device = "cpu", cache = "on";
  unsigned threads = 0; ///< processors; 0: all
  uint64_t cacheBytes = CompileRequest::kMostCacheBytes;
  int64_t reconnect = 600;                    ///< seconds to try for
  std::function<void(std::string_view)> note; ///< required: for the user
};

/// On another machine: reaches the learner, compiles what it asks for, and
/// samples until the run ends. A learner that has gone may come back.
Status workForLearner(RemoteWorkerOptions options);

/// Started by the learner, which is at kWorkerDescriptor: runs the artifact.
Status workForParent(const std::string &artifact, const std::string &device,
                     unsigned threads);

} // namespace tessera
