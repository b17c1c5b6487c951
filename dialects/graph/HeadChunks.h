// In how many chunks of tokens a head's loss is computed, so that its logits
// never exist as a whole.
#pragma once
#include <algorithm>
#include <cstdint>

namespace tessera::graph {

/// Bytes that the logits of a chunk may take. With gradients each chunk adds to
/// the whole gradient of the weight: with as many tokens as the model is wide,
/// that moves no more bytes than the logits do and takes a fraction of the
/// products' time, and the logits take no more memory than that gradient does.
inline int64_t headChunkBytes(int64_t weightElements, bool hasGradient) {
  constexpr int64_t least = 64 << 20;
  return hasGradient ? std::max(least, 4 * weightElements) : least;
}

/// Chunks of equal length, as few as keep logits, [chunk, vocab] in f32, within
/// `bytes`.
inline int64_t countHeadChunks(int64_t tokens, int64_t vocab, int64_t bytes) {
  for (int64_t chunks = 1; chunks < tokens; ++chunks)
    if (tokens % chunks == 0 && tokens / chunks * vocab * 4 <= bytes)
      return chunks;
  return std::max<int64_t>(tokens, 1);
}

} // namespace tessera::graph
