// Loops of which several iterations are in flight at once.
#pragma once
#include "llvm/ADT/StringRef.h"

namespace tessera::gpu {

/// On an scf.for of a GPU's kernel, an integer: iterations that are unrolled.
/// Their loads do not depend on each other, so that a thread waits for memory
/// once for all of them; what they compute keeps its order, and its bits.
inline constexpr llvm::StringLiteral kUnrollByAttr = "tile.unroll_by";

} // namespace tessera::gpu
