// Loops that may be interleaved with products in matrix registers.
#pragma once
#include "llvm/ADT/StringRef.h"

namespace tessera::tile {

/// A unit attribute on an scf.for after a tile.mma_staged, or after another
/// such loop. Iteration i of n reads at most the sums of the i-th n-th of its
/// rows, and no iteration touches what the products read or what another
/// iteration writes. So a target may run an iteration as soon as its rows have
/// their sums, interleaved with the products of later rows. If rows are few or
/// bounds not constant, it may run the loop in place. The attribute does not
/// change what the loop computes.
inline constexpr llvm::StringLiteral kInterleaveAttr = "tile.interleave";

} // namespace tessera::tile
