// Samples in the rows of a batch: every prediction once, with what belongs to
// it, in any packing.
#include "runtime/rl/PackSamples.h"
#include "runtime/data/TokenDataset.h"
#include "runtime/support/SplitMix64.h"

#include <gtest/gtest.h>

#include <map>

namespace tessera::rl {
namespace {

constexpr DocumentInputs kAll = {
    .starts = true, .numbers = true, .reference = false, .samples = true};

TokenBuffers buffersFor(const BatchShape &shape) {
  return {std::size_t(shape.rows * shape.sequence), kAll};
}

TEST(PackSamples, PutsASampleIntoItsRow) {
  Group group;
  group.promptTokens = {5, 6};
  group.samples = {{.tokens = {7, 8},
                    .logProbs = {-0.5f, -0.25f},
                    .versions = {0, 0},
                    .reward = 1}};
  const BatchShape shape{1, 5, 4};
  TokenBuffers batch = buffersFor(shape);
  ASSERT_TRUE(
      packSamples(std::span(&group, 1), {{{2.0}}}, shape, batch.out()).ok());
  const int32_t none = ignoredTarget;
  // The last token is predicted, not read.
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{5, 6, 7, 0, 0}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{none, 7, 8, none, none}));
  EXPECT_EQ(batch.behavior, (std::vector<float>{0, -0.5f, -0.25f, 0, 0}));
  EXPECT_EQ(batch.advantages, (std::vector<float>{0, 2, 2, 0, 0}));
  EXPECT_EQ(batch.documentNumbers, (std::vector<int32_t>{0, 0, 0, none, none}));
  // Padding is a document of its own.
  EXPECT_EQ(batch.documentStarts, (std::vector<int32_t>{0, 0, 0, 3, 3}));
}

TEST(PackSamples, GivesTheLastTokenTheReward) {
  Group group;
  group.promptTokens = {5, 6};
  group.samples = {{.tokens = {7, 8},
                    .logProbs = {-0.5f, -0.25f},
                    .versions = {0, 0},
                    .reward = 3}};
  const BatchShape shape{1, 5, 4};
  DocumentInputs documents = kAll;
  documents.values = true;
  TokenBuffers batch(5, documents);
  batch.values[1] = 9; // of the batch before
  ASSERT_TRUE(
      packSamples(std::span(&group, 1), {{{2.0}}}, shape, batch.out()).ok());
  EXPECT_TRUE(batch.advantages.empty());
  EXPECT_EQ(batch.behavior, (std::vector<float>{0, -0.5f, -0.25f, 0, 0}));
  EXPECT_EQ(batch.rewards, (std::vector<float>{0, 0, 3, 0, 0}));
  EXPECT_EQ(batch.values, (std::vector<float>(5)));
}

/// Groups of random lengths, whose tokens say where they are from.
std::vector<Group> randomGroups(SplitMix64 &random, int64_t most) {
  std::vector<Group> groups(1 + random() % 4);
  int32_t next = 1;
  for (Group &group : groups) {
    const auto prompt = 1 + random() % uint64_t(most / 2);
    for (uint64_t i = 0; i < prompt; ++i)
      group.promptTokens.push_back(next++);
    group.samples.resize(1 + random() % 5);
    for (Sample &sample : group.samples) {
      const auto length = random() % uint64_t(most - int64_t(prompt)) + 1;
      for (uint64_t i = 0; i < length; ++i) {
        sample.tokens.push_back(next++);
        sample.logProbs.push_back(-float(next));
        sample.versions.push_back(0);
      }
      if (random() % 8)
        sample.reward = double(random() % 10);
    }
  }
  return groups;
}

TEST(PackSamples, EveryPredictionOnceInAnyPacking) {
  SplitMix64 random(3);
  for (int round = 0; round < 300; ++round) {
    constexpr int64_t most = 12;
    const std::vector<Group> groups = randomGroups(random, most);
    int64_t count = 0;
    std::map<int32_t, std::pair<float, float>> expected; // by target
    std::vector<std::vector<double>> advantages;
    for (const Group &group : groups) {
      auto &own = advantages.emplace_back();
      for (const Sample &sample : group.samples) {
        own.push_back(double(random() % 100) - 50);
        ++count;
        if (sample.reward)
          for (std::size_t i = 0; i < sample.tokens.size(); ++i)
            expected[sample.tokens[i]] = {sample.logProbs[i],
                                          float(own.back())};
      }
    }
    BatchShape shape{1, most - 1 + int64_t(random() % 20),
                     1 + int64_t(random() % 4)};
    while (!alwaysFits(shape, count, most - 1))
      ++shape.rows;
    TokenBuffers batch = buffersFor(shape);
    ASSERT_TRUE(packSamples(groups, advantages, shape, batch.out()).ok());
    std::size_t predictions = 0;
    for (std::size_t i = 0; i < batch.targets.size(); ++i) {
      const auto t = int32_t(i % std::size_t(shape.sequence));
      const int32_t begin = batch.documentStarts[i];
      EXPECT_LE(begin, t);
      if (batch.documentNumbers[i] != ignoredTarget) {
        // Tokens of one document follow each other, up to its prompt's.
        EXPECT_LT(batch.documentNumbers[i], shape.documents);
        if (begin < t)
          EXPECT_EQ(batch.documentNumbers[i], batch.documentNumbers[i - 1]);
      }
      if (batch.targets[i] == ignoredTarget)
        continue;
      ++predictions;
      ASSERT_TRUE(expected.contains(batch.targets[i]));
      EXPECT_EQ(batch.behavior[i], expected[batch.targets[i]].first);
      EXPECT_EQ(batch.advantages[i], expected[batch.targets[i]].second);
    }
    EXPECT_EQ(predictions, expected.size());
  }
}

TEST(PackSamples, SaysThatThereIsNoRoom) {
  Group group;
  group.promptTokens = {1};
  group.samples.assign(
      3,
      {.tokens = {2, 3}, .logProbs = {0, 0}, .versions = {0, 0}, .reward = 0});
  const BatchShape shape{1, 5, 4};
  EXPECT_FALSE(alwaysFits(shape, 3, 2));
  TokenBuffers batch = buffersFor(shape);
  Status status =
      packSamples(std::span(&group, 1), {{{0, 0, 0}}}, shape, batch.out());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(),
            "3 completions do not fit 1 sequences of 5 tokens; raise "
            "batch.micro, batch.accumulate or batch.sequence");
}

} // namespace
} // namespace tessera::rl
