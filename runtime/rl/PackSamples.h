// Samples as the rows of a training batch.
#pragma once
#include "runtime/data/TokenBatch.h"
#include "runtime/rl/Samples.h"

#include <algorithm>
#include <span>

namespace tessera::rl {

/// The rows of a step, and documents that a row has at most.
struct BatchShape {
  int64_t rows = 0, sequence = 0, documents = 0;
  /// Samples of so many positions that a row always has room for.
  int64_t inSequence(int64_t positions) const {
    return std::min(sequence / std::max<int64_t>(positions, 1), documents);
  }
};

/// Positions that a sample takes: its last token is predicted, not read.
inline int64_t positionsOf(const Group &group, const Sample &sample) {
  return int64_t(group.promptTokens.size() + sample.tokens.size()) - 1;
}

/// Whether so many samples of at most `positions` fit, however they fall.
bool alwaysFits(const BatchShape &shape, int64_t samples, int64_t positions);

/// Packs all samples with a reward, longest first, each into the first row with
/// room, and gives each token of a completion its log-probability and the
/// advantage of its sample. Where the program has no place for something, its
/// span is empty. An error if they do not fit.
Status packSamples(std::span<const Group> groups,
                   std::span<const std::vector<double>> advantages,
                   const BatchShape &shape, TokenBatchOut out);

} // namespace tessera::rl
