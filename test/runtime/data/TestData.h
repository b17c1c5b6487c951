// Small token splits for tests, and where to write them.
#pragma once
#include "runtime/data/TokenSplit.h"
#include "test/support/ScratchDirectory.h"

#include <cassert>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::testing {

/// Writes a split of shards of the given lengths; token i of the stream is
/// (i * 5 + i / 7) % vocab.
inline void writeSplit(const std::string &folder,
                       const std::vector<std::size_t> &lengths,
                       uint32_t vocab) {
  std::filesystem::create_directories(folder);
  SplitIndex index;
  index.vocabSize = vocab;
  uint64_t position = 0;
  for (std::size_t length : lengths) {
    std::vector<uint32_t> tokens(length);
    for (uint32_t &token : tokens) {
      token = uint32_t((position * 5 + position / 7) % vocab);
      ++position;
    }
    std::string name = "shard-" + std::to_string(index.shards.size()) + ".tok";
    Status written = writeTokenShard(folder, name, {tokens, 1, vocab, 0});
    assert(written.ok());
    (void)written;
    index.shards.push_back({name, length, 1});
    index.tokens += length;
    index.documents += 1;
  }
  Status written = writeSplitIndex(index, folder);
  assert(written.ok());
  (void)written;
}

} // namespace tessera::testing
