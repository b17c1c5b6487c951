// The attribute of reshards that are decomposed.
#pragma once
#include "llvm/ADT/StringRef.h"

namespace tessera::dist {

/// On a reshard: an all-gather that matmuls read, or a reduce-scatter of a
/// matmul's result. It is decomposed into chunks, each of which is sent while
/// another chunk is multiplied (collective matmul).
inline constexpr llvm::StringLiteral kCollectiveMatmulAttr =
    "dist.collective_matmul";

} // namespace tessera::dist
