#include "runtime/data/EmptyBatch.h"
#include "runtime/data/TokenDataset.h"

#include <algorithm>

namespace tessera {

void clearBatch(TokenBatchOut out) {
  std::ranges::fill(out.tokens, 0);
  std::ranges::fill(out.targets, ignoredTarget);
  std::ranges::fill(out.documentNumbers, ignoredTarget);
  std::ranges::fill(out.reference, 0.0f);
  std::ranges::fill(out.behavior, 0.0f);
  std::ranges::fill(out.advantages, 0.0f);
  std::ranges::fill(out.rewards, 0.0f);
  std::ranges::fill(out.values, 0.0f);
}

void startPadding(std::span<const int64_t> used, int64_t length,
                  TokenBatchOut out) {
  constexpr int64_t kTokens = 64;
  if (out.documentStarts.empty())
    return;
  for (std::size_t row = 0; row < used.size(); ++row)
    for (int64_t t = used[row]; t < length; ++t)
      out.documentStarts[row * std::size_t(length) + std::size_t(t)] =
          int32_t(t - (t - used[row]) % kTokens);
}

} // namespace tessera
