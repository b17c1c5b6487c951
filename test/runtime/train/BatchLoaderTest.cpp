// Batches that a thread reads ahead are those of TokenDataset, in order.
#include "runtime/train/BatchLoader.h"
#include "test/runtime/data/TestData.h"

#include <gtest/gtest.h>
#include <optional>

using namespace tessera;
using namespace tessera::testing;

namespace {

constexpr uint32_t kVocab = 60000;

class BatchLoaderTest : public ::testing::Test {
protected:
  BatchLoaderTest() {
    writeSplit(folder.path, {8 * 40 + 1}, kVocab);
    auto opened = TokenDataset::open(folder.path, kVocab, 8);
    EXPECT_TRUE(opened.ok());
    data.emplace(opened.take());
    auto same = TrainingData::open(folder.path, {kVocab, 8});
    EXPECT_TRUE(same.ok());
    source.emplace(same.take());
  }
  ScratchDirectory folder;
  std::optional<TokenDataset> data;
  std::optional<TrainingData> source;
};

} // namespace

TEST_F(BatchLoaderTest, GivesTheBatchesOfTheDatasetInOrder) {
  const std::vector<uint64_t> rows = {0, 1, 2};
  BatchLoader loader(*source, {.seed = 5, .first = 7, .rows = 3, .own = rows});
  TokenBuffers expected(3 * 8, {});
  for (uint64_t step = 0; step < 50; ++step) { // across epochs
    auto batch = loader.next();
    ASSERT_TRUE(batch.ok()) << batch.status().message();
    ASSERT_TRUE(data->batch(5, 7 + 3 * step, rows, expected.out()).ok());
    EXPECT_TRUE(std::ranges::equal(batch->tokens, expected.tokens)) << step;
    EXPECT_TRUE(std::ranges::equal(batch->targets, expected.targets)) << step;
  }
}

TEST_F(BatchLoaderTest, ReadsTheRowsOfThisRankOnly) {
  BatchLoader loader(*source,
                     {.seed = 5, .first = 0, .rows = 4, .own = {1, 3}});
  auto batch = loader.next();
  ASSERT_TRUE(batch.ok());
  std::vector<int32_t> row(9);
  for (uint64_t own : {1, 3}) {
    ASSERT_TRUE(data->sample(5, own, row).ok());
    EXPECT_EQ(batch->tokens[own * 8], row[0]);
    EXPECT_EQ(batch->targets[own * 8 + 7], row[8]);
  }
  for (uint64_t other : {0, 2})
    EXPECT_EQ(batch->tokens[other * 8], 0);
}

TEST_F(BatchLoaderTest, MayEndBeforeItsFirstBatchAndAmidReading) {
  {
    BatchLoader unused(*source, {.seed = 1, .rows = 1, .own = {0}});
  }
  BatchLoader loader(*source, {.seed = 1, .rows = 1000, .own = {0, 999}});
  EXPECT_TRUE(loader.next().ok());
}
