// What `tessera inspect --mesh` says: who has what, what ranks do together,
// and when stages of a pipeline work.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include <string>

namespace tessera {

/// Files to draw into besides; empty: none.
struct MeshPictures {
  std::string svg;  ///< the pipeline's timeline
  std::string html; ///< all of it, in one page
};

/// Prints to stdout. Errors: a file that cannot be written, a picture of a
/// pipeline that is not there, an artifact whose schedule is none.
Status inspectMesh(const ArtifactReader &reader, const MeshPictures &pictures);

/// "rank 0", "ranks 0 to 3", "ranks 0, 2 and 5 more"
std::string ranksOf(const artifact::Share &share);

} // namespace tessera
