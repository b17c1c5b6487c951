// A run of `tessera rl` whose arguments were checked: on one process, or on the
// ranks of a mesh, of which rank 0 samples and all learn.
#pragma once
#include "compiler/api/ModelSource.h"
#include "compiler/api/rl/RlPrograms.h"

namespace tessera {

/// Of one process (`ranks` is null), or rank 0.
Status learnByRollouts(RlArguments &arguments, const recipe::Recipe &recipe,
                       const ModelSource &source, InferenceRanks *ranks);

/// Of another rank, which has a part of the learner.
Status followRollouts(RlArguments &arguments, const recipe::Recipe &recipe,
                      InferenceRanks &ranks);

} // namespace tessera
