#include "runtime/data/TokenDataset.h"
#include "test/runtime/data/TestData.h"

#include <fstream>
#include <set>

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::testing;

namespace {

/// Token i of the stream that writeSplit writes.
int32_t tokenAt(uint64_t i, uint64_t vocab) {
  return int32_t((i * 5 + i / 7) % vocab);
}

/// The windows' first positions, found again from their tokens: with a large
/// vocabulary every window is unlike all others.
std::vector<uint64_t> order(const TokenDataset &data, uint64_t seed,
                            uint64_t first, uint64_t count, uint64_t vocab) {
  std::vector<int32_t> row(std::size_t(data.sequence()) + 1);
  std::vector<uint64_t> windows;
  for (uint64_t k = first; k < first + count; ++k) {
    EXPECT_TRUE(data.sample(seed, k, row).ok());
    uint64_t window = 0;
    auto matches = [&] {
      for (std::size_t j = 0; j < row.size(); ++j)
        if (row[j] != tokenAt(window * uint64_t(data.sequence()) + j, vocab))
          return false;
      return true;
    };
    while (window < data.samplesPerEpoch() && !matches())
      ++window;
    EXPECT_LT(window, data.samplesPerEpoch()) << "sample " << k;
    windows.push_back(window);
  }
  return windows;
}

} // namespace

TEST(KeyedPermutation, IsABijectionForEverySize) {
  for (uint64_t size : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 64, 100, 255, 256,
                        257, 1000, 4097})
    for (uint64_t key : {0, 1, 12345}) {
      KeyedPermutation permutation(size, key);
      std::set<uint64_t> seen;
      for (uint64_t i = 0; i < size; ++i) {
        uint64_t image = permutation(i);
        EXPECT_LT(image, size);
        seen.insert(image);
      }
      EXPECT_EQ(seen.size(), size) << "key " << key;
    }
}

TEST(KeyedPermutation, HandlesTheLargestSizes) {
  uint64_t size = (uint64_t(1) << 62) + 12345;
  KeyedPermutation permutation(size, 7);
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 1000; ++i)
    seen.insert(permutation(size - 1 - i));
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_LT(*seen.rbegin(), size);
}

TEST(KeyedPermutation, LooksRandomAndDependsOnTheKey) {
  constexpr uint64_t size = 10000;
  KeyedPermutation a(size, 1), b(size, 2);
  uint64_t fixed = 0, equal = 0, ascents = 0;
  for (uint64_t i = 0; i < size; ++i) {
    fixed += a(i) == i;
    equal += a(i) == b(i);
    ascents += i > 0 && a(i) > a(i - 1);
  }
  // Expected 1, 1 and half; the bounds are far outside of chance.
  EXPECT_LT(fixed, 15u);
  EXPECT_LT(equal, 15u);
  EXPECT_NEAR(double(ascents), size / 2.0, 300);
}

TEST(KeyedPermutation, IsFixedForAllTime) {
  // A change here would change the data order of every resumed run.
  KeyedPermutation permutation(1000, 1337);
  std::vector<uint64_t> first;
  for (uint64_t i = 0; i < 6; ++i)
    first.push_back(permutation(i));
  EXPECT_EQ(first, (std::vector<uint64_t>{525, 23, 220, 521, 586, 903}));
}

TEST(TokenDataset, AnEpochSeesEveryWindowOnceInANewOrder) {
  ScratchDirectory folder;
  constexpr uint32_t vocab = 60000;
  // Windows cross the shards' borders; one shard is shorter than a window.
  writeSplit(folder.path, {101, 3, 1, 90, 57}, vocab);
  auto data = TokenDataset::open(folder.path, vocab, 8);
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(data->tokens(), 252u);
  uint64_t n = data->samplesPerEpoch();
  EXPECT_EQ(n, 31u); // (252 - 1) / 8
  auto first = order(*data, 1, 0, n, vocab);
  auto second = order(*data, 1, n, n, vocab);
  auto other = order(*data, 2, 0, n, vocab);
  for (const auto &epoch : {first, second, other})
    EXPECT_EQ(std::set<uint64_t>(epoch.begin(), epoch.end()).size(), n);
  EXPECT_NE(first, second);
  EXPECT_NE(first, other);
  EXPECT_EQ(order(*data, 1, 5, 3, vocab),
            std::vector<uint64_t>(first.begin() + 5, first.begin() + 8));
}

// Token 0 ends a document.
TEST(TokenDataset, SaysWhereDocumentsBegin) {
  ScratchDirectory folder;
  writeSplit(folder.path, {2000}, 7);
  auto data = TokenDataset::open(folder.path, 7, 32);
  ASSERT_TRUE(data.ok());
  TokenBuffers batch(4 * 32, {.starts = true});
  const std::vector<uint64_t> rows = {0, 1, 2, 3};
  ASSERT_TRUE(data->batch(3, 0, rows, batch.out()).ok());
  std::vector<int32_t> row(33);
  int separators = 0;
  for (std::size_t r = 0; r < 4; ++r) {
    ASSERT_TRUE(data->sample(3, r, row).ok());
    for (std::size_t t = 0; t < 32; ++t) {
      const int32_t start = batch.documentStarts[r * 32 + t];
      ASSERT_LE(start, int32_t(t));
      // No document ended since it began, and one did just before.
      for (std::size_t j = std::size_t(start); j < t; ++j)
        EXPECT_NE(row[j], 0);
      EXPECT_TRUE(start == 0 || row[std::size_t(start) - 1] == 0);
      separators += row[t] == 0;
      EXPECT_EQ(batch.targets[r * 32 + t],
                row[t] == 0 ? ignoredTarget : row[t + 1]);
    }
  }
  EXPECT_GT(separators, 4);
}

TEST(TokenDataset, BatchesAreSamplesShiftedByOne) {
  ScratchDirectory folder;
  writeSplit(folder.path, {200}, 50);
  auto data = TokenDataset::open(folder.path, 50, 8);
  ASSERT_TRUE(data.ok());
  std::vector<int32_t> tokens(3 * 8), targets(3 * 8), row(9);
  // Across the end of an epoch.
  uint64_t k = data->samplesPerEpoch() - 1;
  const std::vector<uint64_t> rows = {0, 1, 2};
  ASSERT_TRUE(data->batch(9, k, rows, {tokens, targets, {}}).ok());
  for (std::size_t r = 0; r < 3; ++r) {
    ASSERT_TRUE(data->sample(9, k + r, row).ok());
    for (std::size_t j = 0; j < 8; ++j) {
      EXPECT_EQ(tokens[r * 8 + j], row[j]);
      EXPECT_EQ(targets[r * 8 + j], row[j + 1]);
    }
  }
  // Only the rows that are asked for.
  std::vector<int32_t> some(3 * 8, -7), ignored(3 * 8);
  const std::vector<uint64_t> last = {2};
  ASSERT_TRUE(data->batch(9, k, last, {some, ignored, {}}).ok());
  EXPECT_EQ(some[0], -7);
  EXPECT_TRUE(std::equal(some.begin() + 16, some.end(), tokens.begin() + 16));
}

TEST(TokenDataset, EvaluationIsFixedSpreadAndMasked) {
  ScratchDirectory folder;
  constexpr uint32_t vocab = 60000;
  writeSplit(folder.path, {8 * 40 + 1}, vocab);
  auto data = TokenDataset::open(folder.path, vocab, 8);
  ASSERT_TRUE(data.ok());
  ASSERT_EQ(data->samplesPerEpoch(), 40u);
  std::vector<int32_t> tokens(4 * 8), targets(4 * 8);
  const std::vector<uint64_t> rows = {0, 1, 2, 3};
  // 2 batches of 4 rows out of 40 windows: every fifth.
  for (uint64_t batch = 0; batch < 2; ++batch) {
    ASSERT_TRUE(data->evalBatch(batch, 2, rows, {tokens, targets, {}}).ok());
    for (uint64_t r = 0; r < 4; ++r) {
      uint64_t begin = (batch * 4 + r) * 5 * 8;
      EXPECT_EQ(tokens[r * 8], tokenAt(begin, vocab));
      EXPECT_EQ(targets[r * 8 + 7], tokenAt(begin + 8, vocab));
    }
  }
  // 11 batches want 44: each window once, and four masked rows.
  std::set<int32_t> seen;
  int masked = 0;
  for (uint64_t batch = 0; batch < 11; ++batch) {
    ASSERT_TRUE(data->evalBatch(batch, 11, rows, {tokens, targets, {}}).ok());
    for (std::size_t r = 0; r < 4; ++r)
      if (targets[r * 8] == ignoredTarget) {
        ++masked;
        for (std::size_t j = 0; j < 8; ++j)
          EXPECT_EQ(targets[r * 8 + j], ignoredTarget);
      } else {
        EXPECT_TRUE(seen.insert(tokens[r * 8]).second);
      }
  }
  EXPECT_EQ(seen.size(), 40u);
  EXPECT_EQ(masked, 4);
}

TEST(TokenDataset, WideTokensAreReadToo) {
  ScratchDirectory folder;
  writeSplit(folder.path, {50}, 100000);
  auto data = TokenDataset::open(folder.path, 100000, 8);
  ASSERT_TRUE(data.ok()) << data.message();
  order(*data, 1, 0, data->samplesPerEpoch(), 100000);
}

TEST(TokenDataset, RefusesWhatCannotBeTrainedOn) {
  ScratchDirectory folder;
  auto message = [&](const std::string &name, int64_t vocab, int64_t length) {
    return TokenDataset::open(folder / name, vocab, length).message();
  };
  EXPECT_NE(message("absent", 10, 8), "");
  writeSplit(folder / "a", {20}, 10);
  EXPECT_EQ(message("a", 10, 19), "");
  EXPECT_NE(message("a", 10, 20)
                .find("20 tokens, fewer than one sequence of "
                      "20"),
            std::string::npos);
  EXPECT_EQ(message("a", 11, 8), "") << "a padded vocabulary is fine";
  EXPECT_NE(message("a", 9, 8).find("vocabulary of 10 tokens, the model has 9"),
            std::string::npos);
  // Wrong magic, and a token that its shard's vocabulary does not have.
  std::string shard = folder / "a/shard-0.tok";
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(64 + 2 * 3).put(char(10));
  }
  auto data = TokenDataset::open(folder / "a", 10, 8);
  ASSERT_TRUE(data.ok());
  std::vector<int32_t> row(9);
  bool found = false;
  for (uint64_t k = 0; k < data->samplesPerEpoch(); ++k)
    found |= !data->sample(0, k, row).ok();
  EXPECT_TRUE(found) << "a token beyond the vocabulary reached the model";
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.put('X');
  }
  EXPECT_NE(message("a", 10, 8).find("shard-0.tok"), std::string::npos);
}
