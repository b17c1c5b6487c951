// The secret of a learner and its rollout workers on other machines.
#pragma once
#include "runtime/rl/WorkerHandshake.h"

namespace tessera {

/// The environment variable of the secret. On a command line every user of the
/// machine could read it.
inline constexpr const char *kRolloutSecret = "TESSERA_ROLLOUT_SECRET";

/// What the file has, or the environment variable if no file is named, or no
/// secret. White space at its end does not count. An error if it is short.
StatusOr<rl::SharedSecret> readRolloutSecret(const std::string &file);

} // namespace tessera
