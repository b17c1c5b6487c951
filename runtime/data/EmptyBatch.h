// What a batch holds where it has no example.
#pragma once
#include "runtime/data/TokenBatch.h"

namespace tessera {

/// Tokens that are not learned, in all rows.
void clearBatch(TokenBatchOut out);

/// Makes what follows the first `used` tokens of each row of `length` short
/// documents of its own: each token for itself would be a tile of queries of
/// attention, and all as one would see each other.
void startPadding(std::span<const int64_t> used, int64_t length,
                  TokenBatchOut out);

} // namespace tessera
