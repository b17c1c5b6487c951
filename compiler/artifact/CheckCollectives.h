// What ranks do together is the same for all of them.
#pragma once
#include "compiler/artifact/ArtifactWriter.h"

namespace tessera {

/// Compares the collectives of each program over all shares, in order: kind,
/// axes and element type everywhere, sizes within each group of ranks that
/// meet. The error names the first that differs, and two ranks.
llvm::Error checkCollectives(llvm::ArrayRef<SharePart> shares);

} // namespace tessera
