// What reshards may say of how they are done.
#pragma once
#include "llvm/ADT/StringRef.h"

namespace tessera::dist {

/// A reshard that gathers what products read, or scatters what one makes: it is
/// done in parts, each of which travels beside a part of the products.
inline constexpr llvm::StringLiteral kCollectiveMatmulAttr =
    "dist.collective_matmul";

} // namespace tessera::dist
