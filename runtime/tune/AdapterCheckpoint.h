// An adapter that is trained, in a directory: PEFT's adapter_config.json and
// adapter_model.safetensors, and training.json and training.safetensors, from
// which training goes on with the same bits.
#pragma once
#include "runtime/tune/AdapterLearner.h"

#include <string>

namespace tessera::tune {

/// Writes the directory, which must not exist, completely or not at all.
Status saveAdapter(AdapterLearner &learner, const std::string &name,
                   const std::string &directory);

/// Begins adapter `name` with what the directory has: one that was saved, or
/// PEFT's, whose optimizer then begins at zero. Errors name what does not fit.
Status loadAdapter(AdapterLearner &learner, const std::string &name,
                   const std::string &directory);

} // namespace tessera::tune
