// Work that may be done while matrix registers multiply.
#pragma once
#include "llvm/ADT/StringRef.h"

namespace tessera::tile {

/// A unit attribute on an scf.for behind a tile.mma_staged, or behind another
/// such loop: turn i of n reads at most the sums of the i-th n-th of its rows,
/// and no turn touches what the products read or what another turn writes. So a
/// target may run a turn as soon as its rows have their sums, beside the
/// products of rows behind them; where rows are few or bounds no constants, it
/// may as well run the loop where it stands. Without it the loop means the
/// same.
inline constexpr llvm::StringLiteral kInterleaveAttr = "tile.interleave";

} // namespace tessera::tile
