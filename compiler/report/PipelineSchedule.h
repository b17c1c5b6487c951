// The pipeline schedule of an artifact, simulated.
#pragma once
#include <optional>

#include "compiler/report/Json.h"
#include "parallelism/pipeline/Timeline.h"
#include "runtime/artifact/Artifact_generated.h"

namespace tessera::report {

/// All loops of a step, concatenated; nothing without a pipeline. Time is in
/// GFLOP of a rank, so that it does not depend on the machine.
StatusOr<std::optional<pipeline::Timeline>>
scheduleOf(const artifact::Artifact &root);

/// {"unit":…,"makespan":…,"bubble":…,"lanes":[{"name":…,"busy":…,"live":…,
/// "events":[[start, duration, operation, stage, microbatch],…]}]}. `unit` is
/// for display, `scale` what a unit of the simulation is in it.
Json scheduleJson(const pipeline::Timeline &timeline, std::string_view unit,
                  double scale);

} // namespace tessera::report
