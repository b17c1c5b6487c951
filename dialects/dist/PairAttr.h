// The attribute of ops of a forward and a backward that run at the same time.
#pragma once
#include "llvm/ADT/StringRef.h"

namespace tessera::dist {

/// On ops of a pipeline's OVERLAP, from split-stages to interleave-pairs: the
/// number of the pair, and 0 for its forward or 1 for its backward.
inline constexpr llvm::StringLiteral kPairAttr = "dist.pair";

} // namespace tessera::dist
