// How many loads of a thread are in flight at once.
#pragma once
#include "llvm/ADT/StringRef.h"
#include <algorithm>

namespace tessera::gpu {

/// On an scf.for of a GPU's kernel, an integer: iterations that are unrolled.
/// Their loads do not depend on each other, so that a thread waits for memory
/// once for all of them; what they compute keeps its order, and its bits.
inline constexpr llvm::StringLiteral kUnrollByAttr = "tile.unroll_by";

/// Full tiles of a row whose loads are in flight at once, where each reads
/// `loads` buffers: their elements take registers. A power of two.
inline int64_t tilesInFlight(int64_t loads) {
  return loads <= 1 ? 4 : loads == 2 ? 2 : 1;
}

/// The width of as many tiles of `width` elements together, fewer where a row
/// of `size` elements has not two of that width.
inline int64_t widthInFlight(int64_t width, int64_t size, int64_t tiles) {
  while (tiles > 1 && size < 2 * tiles * width)
    tiles /= 2;
  return tiles * width;
}

/// Elements of a block of `most` at most, so that `all` of them are in enough
/// blocks for a GPU: with few, a thread waits for one after the other.
inline int64_t elementsOfBlock(int64_t all, int64_t most,
                               int64_t multiprocessors) {
  constexpr int64_t kBlocks = 2; // of a multiprocessor
  return std::clamp<int64_t>(all / (kBlocks * multiprocessors), 1, most);
}

} // namespace tessera::gpu
