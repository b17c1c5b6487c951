#include "tools/tessera/RolloutSecretOption.h"
#include <CLI/CLI.hpp>

void tessera::addRolloutSecretOption(CLI::App &command, std::string &file) {
  command
      .add_option("--rollout-secret-file", file,
                  "file with the secret that the learner and rollout workers "
                  "on other machines share (default: what "
                  "TESSERA_ROLLOUT_SECRET has)")
      ->type_name("FILE");
}
