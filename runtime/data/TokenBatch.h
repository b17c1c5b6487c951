// What a training program reads of a batch: numbers of [rows, T] tokens.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// Views of one batch.
template <typename Number> struct TokenBatchOf {
  std::span<Number> tokens;
  std::span<Number> targets; ///< ignoredTarget: adds nothing to the loss
  /// Where in its row the document of a token begins. Empty if tokens see all
  /// earlier ones of their row.
  std::span<Number> documentStarts;

  /// The same views from element `first` on.
  TokenBatchOf part(std::size_t first, std::size_t count) const {
    return {tokens.subspan(first, count), targets.subspan(first, count),
            documentStarts.empty() ? documentStarts
                                   : documentStarts.subspan(first, count)};
  }
};
using TokenBatch = TokenBatchOf<const int32_t>;
using TokenBatchOut = TokenBatchOf<int32_t>;

/// Memory of a batch.
struct TokenBuffers {
  std::vector<int32_t> tokens, targets, documentStarts;

  TokenBuffers() = default;
  /// All zero; with `separate`, documents have starts.
  TokenBuffers(std::size_t count, bool separate)
      : tokens(count), targets(count), documentStarts(separate ? count : 0) {}
  TokenBatchOut out() { return {tokens, targets, documentStarts}; }
  TokenBatch view() const { return {tokens, targets, documentStarts}; }
};

} // namespace tessera
