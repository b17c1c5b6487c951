// The learner of `tessera serve --train`.
#pragma once
#include "compiler/api/OpenedModel.h"
#include "runtime/tune/TrainingService.h"

#include <memory>
#include <string>
#include <vector>

namespace tessera {

/// What the command line says of training.
struct TrainingSettings {
  int64_t adapters = 0;  ///< at once; 0: nothing is trained
  std::string directory; ///< of saved adapters; empty: none
};

/// Checks the recipe, and adds the keys to `choice` by which inference programs
/// hold the adapters in slots: two for each, its newest state and one that
/// requests still use, and one to publish into. Before anything is compiled.
Status prepareTraining(const TrainingSettings &settings, ModelChoice &choice,
                       const std::optional<ModelSource> &source);

/// Compiles the programs that learn, and reads the base's weights. `choice` is
/// as it was before prepareTraining().
StatusOr<std::shared_ptr<tune::TrainingService>>
openTraining(const TrainingSettings &settings, const ModelChoice &choice,
             const ModelSource &source);

} // namespace tessera
