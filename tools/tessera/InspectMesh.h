// Prints `tessera inspect --mesh`: the shards of each rank, collectives, and
// the pipeline schedule.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include <string>

namespace tessera {

/// Prints to stdout, and draws the pipeline's timeline into the file `svg`
/// unless that is empty. Errors: a file that cannot be written, --svg of an
/// artifact without a pipeline, an invalid schedule in the artifact.
Status inspectMesh(const ArtifactReader &reader, const std::string &svg);

} // namespace tessera
