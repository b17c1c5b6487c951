// Prints `tessera inspect --mesh`: the shards of each rank, collectives, and
// the pipeline schedule.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include <string>

namespace tessera {

/// Additional files to write; empty: none.
struct MeshPictures {
  std::string svg;  ///< the pipeline's timeline
  std::string html; ///< the whole report as one page
};

/// Prints to stdout. Errors: a file that cannot be written, --svg of an
/// artifact without a pipeline, an invalid schedule in the artifact.
Status inspectMesh(const ArtifactReader &reader, const MeshPictures &pictures);

/// "rank 0", "ranks 0 to 3", "ranks 0, 2 and 5 more"
std::string ranksOf(const artifact::Share &share);

} // namespace tessera
