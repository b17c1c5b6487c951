// Random packed rows on disk, for tests of what reads them.
#pragma once
#include "runtime/data/PackedDataset.h"

#include <fstream>
#include <gtest/gtest.h>
#include <random>

namespace tessera::testing {

inline constexpr uint32_t kVocab = 97, kSequence = 24;
inline constexpr int32_t kPadding = 96;

/// Shards of random rows.
inline std::vector<PackedShardContents> randomShards(uint32_t seed,
                                                     int shards) {
  std::mt19937 random(seed);
  std::vector<PackedShardContents> all;
  for (int i = 0; i < shards; ++i) {
    PackedShardContents &shard = all.emplace_back();
    shard.sequence = kSequence;
    shard.vocabSize = kVocab;
    shard.tokenizerHash = 5;
    for (uint32_t row = 0; row < 1 + random() % 7; ++row) {
      uint32_t room = kSequence, documents = 0;
      while (room > 0 && (documents == 0 || random() % 4 != 0)) {
        const uint32_t length = 1 + random() % room;
        for (uint32_t k = 0; k < length; ++k) {
          shard.tokens.push_back(random() % kVocab);
          shard.supervised.push_back(random() % 2);
        }
        shard.documents.push_back({length, DocumentKind(random() % 5),
                                   uint16_t(random() % 3), random()});
        room -= length;
        ++documents;
      }
      shard.rowDocuments.push_back(documents);
    }
  }
  return all;
}

inline void write(const std::string &folder,
                  const std::vector<PackedShardContents> &shards) {
  PackedIndex index;
  index.sequence = kSequence;
  index.vocabSize = kVocab;
  index.tokenizerHash = 5;
  index.paddingToken = kPadding;
  for (const PackedShardContents &shard : shards) {
    const std::string name = fmt::format("s{}", index.shards.size());
    Status written = writePackedShard(folder, name, shard);
    ASSERT_TRUE(written.ok()) << written.message();
    index.shards.push_back({name, shard.rowDocuments.size(),
                            shard.documents.size(), shard.tokens.size()});
    index.rows += shard.rowDocuments.size();
    index.documents += shard.documents.size();
    index.tokens += shard.tokens.size();
  }
  Status written = writePackedIndex(index, folder);
  ASSERT_TRUE(written.ok()) << written.message();
}

/// Buffers of `rows` rows.
struct Inputs {
  explicit Inputs(std::size_t rows)
      : tokens(rows * kSequence, -7), targets(tokens), lossMask(tokens),
        segments(tokens), positions(tokens) {}
  PackedRowSpans spans() {
    return {tokens, targets, lossMask, segments, positions};
  }
  std::vector<int32_t> tokens, targets, lossMask, segments, positions;
  bool operator==(const Inputs &) const = default;
};

inline std::string readAll(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void writeAll(const std::string &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

} // namespace tessera::testing
