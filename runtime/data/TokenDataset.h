// Training samples out of a tokenized split, in an order that is a pure
// function: sample k = f(seed, k). The state of the data pipeline is therefore
// one integer, the same for any number of microbatches, ranks or restarts.
#pragma once
#include "runtime/data/TokenBatch.h"
#include "runtime/data/TokenSplit.h"
#include "runtime/support/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// The label that the loss skips.
inline constexpr int32_t ignoredTarget = -100;

/// A permutation of 0 … size-1 chosen by a 64-bit key: a balanced Feistel
/// network (six rounds of a 64-bit mixer) over the next even power of two, with
/// cycle walking back into the range. No table, constant memory.
class KeyedPermutation {
public:
  KeyedPermutation(uint64_t size, uint64_t key);
  /// `index` < size.
  uint64_t operator()(uint64_t index) const;

private:
  uint64_t size;
  uint64_t key;
  unsigned halfBits;
};

/// A split as one stream of tokens, divided into windows of T + 1 tokens that
/// overlap by one, so that every token but the first is a target once an epoch:
/// window i is tokens [iT, iT + T]. A rest of fewer than T tokens at the end is
/// unused.
class TokenDataset {
public:
  /// Opens `folder` (index.json and its shards) for a model of `vocabSize`
  /// tokens and sequences of `sequence` = T tokens. Refuses a split that was
  /// tokenized for a larger vocabulary or is shorter than one window.
  static StatusOr<TokenDataset> open(const std::string &folder,
                                     int64_t vocabSize, int64_t sequence);

  int64_t sequence() const { return length; }
  uint64_t tokens() const { return split.index.tokens; }
  /// Windows, each seen once an epoch.
  uint64_t samplesPerEpoch() const { return windows; }
  const SplitIndex &index() const { return split.index; }

  /// Sample k of the endless shuffled stream: `out` is T + 1 tokens. Epoch
  /// k / samplesPerEpoch has its own permutation.
  Status sample(uint64_t seed, uint64_t k, std::span<int32_t> out) const;

  /// Samples k, k + 1, … as model inputs: targets are tokens shifted by one.
  /// Only `rows` (their numbers) are read and written. Where `out` has starts
  /// of documents, the separator that ends one has no target.
  Status batch(uint64_t seed, uint64_t k, std::span<const uint64_t> rows,
               TokenBatchOut out) const;

  /// Batch `index` of a fixed evaluation of `batches` batches: the same windows
  /// whatever the seed, spread evenly over the split. If the split has too few
  /// windows, the rows left over repeat window 0 with every target ignored.
  /// Only `rows` are read and written.
  Status evalBatch(uint64_t index, uint64_t batches,
                   std::span<const uint64_t> rows, TokenBatchOut out) const;

private:
  Status window(uint64_t index, std::span<int32_t> out) const;
  void put(std::span<const int32_t> row, uint64_t number,
           TokenBatchOut batch) const;

  TokenSplit split;
  std::vector<uint64_t> shardBegins; // position of each shard in the stream
  int64_t length = 0;
  uint64_t windows = 0;
};

} // namespace tessera
