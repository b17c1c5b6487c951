#include "runtime/data/TokenDataset.h"
#include "runtime/support/SplitMix64.h"

#include <algorithm>
#include <bit>

namespace tessera {

static constexpr unsigned kRounds = 6;

KeyedPermutation::KeyedPermutation(uint64_t size, uint64_t key)
    : size(size), key(key) {
  unsigned bits = size > 1 ? unsigned(std::bit_width(size - 1)) : 1;
  halfBits = (bits + 1) / 2;
}

uint64_t KeyedPermutation::operator()(uint64_t index) const {
  uint64_t mask = (uint64_t(1) << halfBits) - 1;
  // The network's domain is less than four times `size`, so a walk takes
  // fewer than four steps on average, and it ends because it is a cycle
  // through `index` itself.
  do {
    uint64_t left = index >> halfBits, right = index & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      uint64_t next =
          left ^ (mix64(mix64(key + round * kGoldenGamma) ^ right) & mask);
      left = right;
      right = next;
    }
    index = left << halfBits | right;
  } while (index >= size);
  return index;
}

StatusOr<TokenDataset> TokenDataset::open(const std::string &folder,
                                          int64_t vocabSize, int64_t sequence) {
  StatusOr<TokenSplit> split = TokenSplit::open(folder);
  if (!split.ok())
    return split.status();
  TokenDataset dataset;
  dataset.split = split.take();
  dataset.length = sequence;
  const SplitIndex &index = dataset.split.index;
  // Reading a shard refuses tokens at or above its own vocabulary, so this
  // one comparison keeps every embedding lookup in bounds.
  if (index.vocabSize > uint64_t(vocabSize))
    return Status::error("'{}' was tokenized for a vocabulary of {} tokens, "
                         "the model has {}; tokenize it with the model's "
                         "tokenizer or compile the model with vocab_size {}",
                         folder, index.vocabSize, vocabSize, index.vocabSize);
  uint64_t tokens = 0;
  for (const TokenShard &shard : dataset.split.shards) {
    dataset.shardBegins.push_back(tokens);
    tokens += shard.size();
  }
  if (tokens < uint64_t(sequence) + 1)
    return Status::error("'{}' holds {} tokens, fewer than one sequence of {} "
                         "and its last target; use more text or a smaller "
                         "batch.sequence",
                         folder, tokens, sequence);
  dataset.windows = (tokens - 1) / uint64_t(sequence);
  return dataset;
}

Status TokenDataset::window(uint64_t index, std::span<int32_t> out) const {
  uint64_t begin = index * uint64_t(length);
  auto after = std::upper_bound(shardBegins.begin(), shardBegins.end(), begin);
  std::size_t shard = std::size_t(after - shardBegins.begin()) - 1;
  for (; !out.empty(); ++shard) {
    uint64_t offset = begin - shardBegins[shard];
    uint64_t count =
        std::min<uint64_t>(out.size(), split.shards[shard].size() - offset);
    TESSERA_RETURN_IF_ERROR(split.shards[shard].read(offset, out.first(count)));
    out = out.subspan(count);
    begin += count;
  }
  return Status::success();
}

Status TokenDataset::sample(uint64_t seed, uint64_t k,
                            std::span<int32_t> out) const {
  KeyedPermutation order(windows, mix64(seed) + k / windows);
  return window(order(k % windows), out);
}

// Row `number` of a batch, from T + 1 tokens.
void TokenDataset::put(std::span<const int32_t> row, uint64_t number,
                       TokenBatchOut batch) const {
  const std::size_t size = row.size() - 1;
  const TokenBatchOut out = batch.part(number * size, size);
  std::copy(row.begin(), row.end() - 1, out.tokens.begin());
  std::copy(row.begin() + 1, row.end(), out.targets.begin());
  if (out.documentStarts.empty())
    return;
  int32_t start = 0;
  for (std::size_t t = 0; t < size; ++t) {
    out.documentStarts[t] = start;
    if (uint32_t(row[t]) != split.index.separator)
      continue;
    // What follows is the next document's.
    out.targets[t] = ignoredTarget;
    start = int32_t(t) + 1;
  }
}

Status TokenDataset::batch(uint64_t seed, uint64_t k,
                           std::span<const uint64_t> rows,
                           TokenBatchOut out) const {
  std::vector<int32_t> row(std::size_t(length) + 1);
  for (uint64_t number : rows) {
    TESSERA_RETURN_IF_ERROR(sample(seed, k + number, row));
    put(row, number, out);
  }
  return Status::success();
}

Status TokenDataset::evalBatch(uint64_t index, uint64_t batches,
                               std::span<const uint64_t> rows,
                               TokenBatchOut out) const {
  std::vector<int32_t> row(std::size_t(length) + 1);
  const uint64_t all = out.tokens.size() / uint64_t(length),
                 wanted = all * batches;
  for (uint64_t r : rows) {
    uint64_t number = index * all + r;
    bool spare = wanted > windows && number >= windows;
    uint64_t place = number;
    if (spare)
      place = 0;
    else if (wanted < windows)
      place =
          uint64_t(static_cast<unsigned __int128>(number) * windows / wanted);
    TESSERA_RETURN_IF_ERROR(window(place, row));
    put(row, r, out);
    if (spare)
      std::fill_n(out.targets.begin() + r * uint64_t(length), length,
                  ignoredTarget);
  }
  return Status::success();
}

} // namespace tessera
