// Rollouts over a model whose logits are hashes of its text: what is sampled,
// by which weights, and what a journal spares.
#include "runtime/rl/Rollouts.h"
#include "runtime/rl/EngineSampler.h"
#include "runtime/rl/HostWeights.h"
#include "test/runtime/infer/engine/FakeModel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

namespace tessera::rl {
namespace {

bool never() { return false; }

class CountTokens final : public Reward {
public:
  StatusOr<double> score(const RewardQuestion &question) override {
    ++asked;
    if (asked == failsAt)
      return Status::error("no reward");
    return double(question.completion.size());
  }
  int asked = 0, failsAt = 0;
};

DecoderShape shapeOfModel() {
  DecoderShape shape;
  shape.context = 24;
  shape.page = 4;
  shape.pages = 40;
  shape.chunk = 8;
  shape.vocab = 11;
  shape.buckets = {1, 4};
  return shape;
}

/// A model in this process, without weights that could change.
struct FakeSampler {
  testing::FakeModel model{shapeOfModel()};
  HostWeights weights{{}};
  EngineSampler engine{model, weights};
};

class RolloutsTest : public ::testing::Test {
protected:
  void SetUp() override {
    folder = ::testing::TempDir() + "/rollouts";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    for (int32_t i = 0; i < 5; ++i)
      prompts.push_back(
          {"p:" + std::to_string(i + 1), "{}", {i, i + 1, i + 2, i, i + 3}});
  }
  RolloutOptions options(int64_t staleness) {
    RolloutOptions options;
    options.settings.prompts = 2;
    options.settings.group = 3;
    options.settings.maxTokens = 6;
    options.settings.staleness = staleness;
    options.seed = 17;
    options.stopTokens = {0};
    options.decode = [](std::span<const int32_t> tokens) {
      return std::string(tokens.size(), 'x');
    };
    options.note = [this](std::string_view line) { notes.emplace_back(line); };
    return options;
  }
  void begin(Rollouts &rollouts, uint64_t first = 0, uint64_t step = 0) {
    std::vector<Group> journaled;
    auto journal = SampleJournal::open(folder, {}, first, journaled);
    ASSERT_TRUE(journal.ok()) << journal.message();
    rollouts.begin(first, step, journal.take(), std::move(journaled));
  }
  /// Groups of some steps, as a learner takes them.
  std::vector<Group> run(uint64_t steps, int64_t staleness,
                         uint64_t first = 0) {
    FakeSampler model;
    Rollouts rollouts(model.engine, nullptr, prompts, reward,
                      options(staleness));
    begin(rollouts, first, first / 2);
    std::vector<Group> all;
    for (uint64_t step = first / 2; step < steps; ++step) {
      EXPECT_TRUE(
          rollouts.updateWeights(step, [] { return Status::success(); }).ok());
      auto groups = rollouts.take(never);
      EXPECT_TRUE(groups.ok()) << groups.message();
      for (Group &group : *groups)
        all.push_back(std::move(group));
    }
    return all;
  }

  std::string folder;
  std::vector<Prompt> prompts;
  CountTokens reward;
  std::vector<std::string> notes;
};

TEST_F(RolloutsTest, GroupsAreOfTheirPromptsAndNumbers) {
  const std::vector<Group> groups = run(3, 0);
  ASSERT_EQ(groups.size(), 6u);
  for (uint64_t i = 0; i < groups.size(); ++i) {
    EXPECT_EQ(groups[i].number, i);
    EXPECT_EQ(groups[i].prompt, promptOfGroup(17, i, 5));
    EXPECT_EQ(groups[i].promptTokens, prompts[groups[i].prompt].tokens);
    ASSERT_EQ(groups[i].samples.size(), 3u);
    for (const Sample &sample : groups[i].samples) {
      EXPECT_EQ(sample.isCut, sample.tokens.back() != 0);
      EXPECT_EQ(sample.reward, double(sample.tokens.size()));
      ASSERT_EQ(sample.logProbs.size(), sample.tokens.size());
      for (float logProb : sample.logProbs)
        EXPECT_LT(logProb, 0);
      // Without staleness the weights are those of the step before.
      for (uint32_t version : sample.versions)
        EXPECT_EQ(version, i / 2);
    }
  }
}

TEST_F(RolloutsTest, AreTheSameWhenSampledAgain) {
  const std::vector<Group> groups = run(3, 0);
  SetUp();
  prompts.resize(5);
  const std::vector<Group> again = run(3, 0);
  for (uint64_t i = 0; i < groups.size(); ++i)
    EXPECT_EQ(printGroup(groups[i]), printGroup(again[i]));
}

TEST_F(RolloutsTest, RunAheadAsFarAsAllowed) {
  const std::vector<Group> groups = run(6, 2);
  for (const Group &group : groups)
    for (const Sample &sample : group.samples)
      for (uint32_t version : sample.versions) {
        EXPECT_LE(version, group.number / 2);
        EXPECT_GE(version + 2, group.number / 2);
      }
}

TEST_F(RolloutsTest, TheJournalIsNotSampledAgain) {
  const std::vector<Group> groups = run(3, 0);
  const int asked = reward.asked;
  // As after a crash: the learner goes on after step 1, of groups 0 and 1.
  const std::vector<Group> again = run(3, 0, 2);
  EXPECT_EQ(reward.asked, asked);
  ASSERT_EQ(again.size(), 4u);
  for (uint64_t i = 0; i < again.size(); ++i)
    EXPECT_EQ(printGroup(again[i]), printGroup(groups[i + 2]));
}

TEST_F(RolloutsTest, ARewardThatFailsEndsTheRun) {
  reward.failsAt = 2;
  FakeSampler model;
  Rollouts rollouts(model.engine, nullptr, prompts, reward, options(0));
  begin(rollouts);
  ASSERT_TRUE(rollouts.updateWeights(0, [] { return Status::success(); }).ok());
  auto groups = rollouts.take(never);
  ASSERT_FALSE(groups.ok());
  EXPECT_TRUE(groups.message().ends_with(
      ": the reward: no reward; rollout.on_reward_failure: drop goes "
      "on without such completions"))
      << groups.message();
}

TEST_F(RolloutsTest, OrIsDroppedWhereTheRecipeSaysSo) {
  reward.failsAt = 2;
  FakeSampler model;
  RolloutOptions given = options(0);
  given.settings.onRewardFailure = recipe::RewardFailure::Drop;
  Rollouts rollouts(model.engine, nullptr, prompts, reward, given);
  begin(rollouts);
  ASSERT_TRUE(rollouts.updateWeights(0, [] { return Status::success(); }).ok());
  auto groups = rollouts.take(never);
  ASSERT_TRUE(groups.ok()) << groups.message();
  int dropped = 0;
  for (const Group &group : *groups)
    for (const Sample &sample : group.samples)
      dropped += !sample.reward;
  EXPECT_EQ(dropped, 1);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(notes[0].ends_with("the completion is not learned from"));
}

TEST_F(RolloutsTest, TheReferenceModelScoresWhatWasSampled) {
  // A model of the same weights: it gives tokens what they were sampled with.
  FakeSampler model;
  testing::FakeModel reference(shapeOfModel());
  Rollouts rollouts(model.engine, &reference, prompts, reward, options(0));
  begin(rollouts);
  ASSERT_TRUE(rollouts.updateWeights(0, [] { return Status::success(); }).ok());
  auto groups = rollouts.take(never);
  ASSERT_TRUE(groups.ok()) << groups.message();
  for (const Group &group : *groups)
    for (const Sample &sample : group.samples) {
      ASSERT_EQ(sample.referenceLogProbs.size(), sample.tokens.size());
      for (std::size_t i = 0; i < sample.tokens.size(); ++i)
        EXPECT_NEAR(sample.referenceLogProbs[i], sample.logProbs[i], 1e-5);
    }
}

TEST_F(RolloutsTest, MeasuresHeldOutPrompts) {
  const std::vector<Prompt> others = {{"q:1", "{}", {7, 8}},
                                      {"q:2", "{}", {9}}};
  FakeSampler model;
  Rollouts rollouts(model.engine, nullptr, prompts, reward, options(0));
  begin(rollouts);
  ASSERT_TRUE(rollouts.updateWeights(0, [] { return Status::success(); }).ok());
  auto first = rollouts.evaluate(others, never);
  ASSERT_TRUE(first.ok() && *first) << first.message();
  // Greedy, so it is the same again; and it takes nothing from training.
  auto second = rollouts.evaluate(others, never);
  ASSERT_TRUE(second.ok() && *second) << second.message();
  EXPECT_EQ(**first, **second);
  EXPECT_GE(**first, 1);
  EXPECT_LE(**first, 6);
  auto groups = rollouts.take(never);
  ASSERT_TRUE(groups.ok()) << groups.message();
  EXPECT_EQ((*groups)[0].number, 0u);
  EXPECT_EQ((*groups)[1].number, 1u);
}

TEST_F(RolloutsTest, StopsWhileItWaits) {
  FakeSampler model;
  auto slow = rewardProgram("sleep 600", 600);
  const auto begun = std::chrono::steady_clock::now();
  {
    Rollouts rollouts(model.engine, nullptr, prompts, *slow, options(0));
    begin(rollouts);
    ASSERT_TRUE(
        rollouts.updateWeights(0, [] { return Status::success(); }).ok());
    auto groups = rollouts.take([] { return true; });
    ASSERT_TRUE(groups.ok()) << groups.message();
    EXPECT_TRUE(groups->empty());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(60));
}

TEST_F(RolloutsTest, ADeviceThatFailsIsNamed) {
  FakeSampler model;
  model.model.broken = true;
  Rollouts rollouts(model.engine, nullptr, prompts, reward, options(0));
  begin(rollouts);
  ASSERT_TRUE(rollouts.updateWeights(0, [] { return Status::success(); }).ok());
  auto groups = rollouts.take(never);
  ASSERT_FALSE(groups.ok());
  EXPECT_EQ(groups.message(), "sampling: the device is gone");
}

} // namespace
} // namespace tessera::rl
