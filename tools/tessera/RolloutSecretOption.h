// --rollout-secret-file of a learner and of its rollout workers.
#pragma once
#include <string>

namespace CLI {
class App;
}

namespace tessera {

/// Adds --rollout-secret-file.
void addRolloutSecretOption(CLI::App &command, std::string &file);

} // namespace tessera
