// What a run of `tessera rl` begins with, checked before anything is compiled.
#pragma once
#include "compiler/api/ModelSource.h"
#include "compiler/api/rl/RlPrograms.h"

namespace tessera {

/// The step that the run ends with.
uint64_t lastStepOf(const RlArguments &arguments, const recipe::Recipe &recipe);

/// What all ranks find in the arguments: the model directory and the recipe. It
/// also chooses the device of a rank (`launch`, or null), and the weights that
/// the run begins with. Errors say what to change.
Status checkRun(RlArguments &arguments, const comm::Launch *launch,
                std::optional<ModelSource> &source, recipe::Recipe &recipe);

} // namespace tessera
