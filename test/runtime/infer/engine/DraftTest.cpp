// Speculative decoding with a draft model: how many tokens it proposes, that
// what it has of a text is that text, and that it changes no output.
#include "runtime/infer/engine/DraftCounts.h"
#include "runtime/infer/engine/DraftModel.h"
#include "runtime/infer/engine/Scheduler.h"
#include "test/runtime/infer/engine/FakeModel.h"
#include "test/runtime/infer/engine/RandomPlan.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

namespace tessera {
namespace {

using testing::Collected;
using testing::expectAsAlone;
using testing::FakeModel;
using testing::Planned;
using testing::Random;
using testing::randomPlan;
using testing::shapeOf;

EngineClock::time_point time; // of the scheduler's clock
EngineClock::time_point now() { return time; }

/// Another model, whose decode steps take as long as its time is moved.
class TimedModel final : public PagedModel {
public:
  TimedModel(PagedModel &model, int64_t microseconds)
      : model(model), taken(microseconds) {}
  const DecoderShape &shape() const override { return model.shape(); }
  Status prefill(const CachedText &text, std::span<const int32_t> tokens,
                 const Wanted &wanted) override {
    return model.prefill(text, tokens, wanted);
  }
  Status decode(std::span<const CachedText> sequences,
                std::span<const int32_t> tokens,
                const Wanted &wanted) override {
    time += taken;
    return model.decode(sequences, tokens, wanted);
  }
  std::span<const float> logits(int64_t row) const override {
    return model.logits(row);
  }
  int32_t token(int64_t row) const override { return model.token(row); }

private:
  PagedModel &model;
  std::chrono::microseconds taken;
};

// A draft model is a tenth of the model.
constexpr int64_t kStep = 100, kDraft = 10;

//===--- counts -----------------------------------------------------------===//

TEST(DraftCounts, AreWorthTheirTime) {
  DraftCounts counts({1, 2, 4, 8});
  using Counts = std::vector<int64_t>;
  using All = std::vector<DraftCounts::Candidate>;
  auto choose = [&](const All &all) { return counts.choose(all); };
  // Before any time is known, and as far as there is room.
  EXPECT_EQ(choose({{0.7, 100}}), Counts{7});
  EXPECT_EQ(choose({{0.7, 2}}), Counts{2});
  EXPECT_EQ(choose({{0.7, 0}}), Counts{0});
  for (int64_t rows : {1, 2, 4, 8})
    counts.tookStep(rows, 10e-3);
  counts.tookDrafts(4, 4 * 1e-3);
  // (1 - a^(k + 1)) / (1 - a) / (10 + k) is the largest for this k.
  EXPECT_EQ(choose({{0.9, 100}}), Counts{7});
  EXPECT_EQ(choose({{0.7, 100}}), Counts{4});
  EXPECT_EQ(choose({{0.3, 100}}), Counts{1});
  EXPECT_EQ(choose({{0.05, 100}}), Counts{0});
  // Likelier ones first.
  EXPECT_EQ(choose({{0.9, 100}, {0.2, 100}, {0.9, 2}}), (Counts{3, 0, 2}));
  EXPECT_EQ(choose(All(8, {0.9, 9})), Counts(8, 0));
}

TEST(DraftCounts, KnowWhatASizeCosts) {
  DraftCounts counts({1, 2, 4, 8});
  for (int i = 0; i < 100; ++i) {
    counts.tookStep(2, 1e-3);
    counts.tookStep(4, 1e-3);
    counts.tookStep(7, 3e-3); // of 8
    counts.tookDrafts(2, 1e-6);
  }
  const DraftCounts::Candidate one[] = {{0.9, 9}};
  EXPECT_EQ(counts.choose(one), std::vector<int64_t>{3});
  // Seen long ago, others are tried again.
  for (int i = 0; i < 1000; ++i)
    counts.tookStep(4, 1e-3);
  EXPECT_NE(counts.choose(one), std::vector<int64_t>{3});
}

TEST(DraftChance, FollowsOutcomes) {
  DraftChance chance;
  const double usual = chance.next();
  for (int i = 0; i < 100; ++i)
    chance.outcome(4, 4);
  EXPECT_GT(chance.next(), 0.99);
  for (int i = 0; i < 100; ++i)
    chance.outcome(4, 0);
  EXPECT_LT(chance.next(), 0.01);
  for (int i = 0; i < 2000; ++i)
    chance.outcome(0, 0);
  EXPECT_NEAR(chance.next(), usual, 0.01);
}

//===--- drafts -----------------------------------------------------------===//

// The draft model is the model, so all of its drafts are accepted if it has
// read the same text: whatever was refused, preempted or shared before.
TEST(DraftModel, HasReadWhatTheModelHasRead) {
  uint64_t drafted = 0, preemptions = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    FakeModel model(shapeOf(10 + random(20)));
    TimedModel timed(model, kStep);
    DecoderShape shape = shapeOf(12 + random(40));
    shape.changes = std::array{-1, 0, 61}[seed % 3];
    shape.page = 3;
    FakeModel same(shape);
    TimedModel draft(same, kDraft);
    Scheduler scheduler(timed,
                        {.drafts = 1 + random(4), .draft = &draft, .now = now});
    std::vector<Planned> plan = randomPlan(random);
    for (Planned &each : plan) {
      each.request.adapter.reset();
      each.request.stopTokens.clear(); // what follows an end is refused
      each.request.sampling.repetitionPenalty = 1;
      each.request.sampling.frequencyPenalty = 0;
    }
    run(scheduler, model.shape(), plan);
    const EngineMetrics &metrics = scheduler.metrics();
    EXPECT_EQ(metrics.acceptedTokens, metrics.draftTokens);
    drafted += metrics.draftTokens;
    preemptions += metrics.preemptions;
    if (::testing::Test::HasFailure())
      return;
  }
  EXPECT_GT(drafted, 2000u);
  EXPECT_GT(preemptions, 20u);
}

TEST(DraftModel, ChangesNoOutput) {
  uint64_t drafted = 0, accepted = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    FakeModel model(shapeOf(10 + random(20)));
    TimedModel timed(model, kStep);
    DecoderShape shape = shapeOf(8 + random(20)); // no adapters, too
    shape.buckets = {1, 1 + random(3)};
    shape.chunk = 5;
    shape.context = 20 + random(30);
    FakeModel other(shape);
    TimedModel draft(other, kDraft);
    Scheduler scheduler(timed, {.maxBatch = random(5),
                                .drafts = 1 + random(4),
                                .draft = &draft,
                                .now = now});
    std::vector<Planned> plan = randomPlan(random);
    run(scheduler, model.shape(), plan);
    for (const Planned &each : plan)
      expectAsAlone(each);
    EXPECT_EQ(scheduler.metrics().pagesUsed, 0);
    drafted += scheduler.metrics().draftTokens;
    accepted += scheduler.metrics().acceptedTokens;
    if (::testing::Test::HasFailure())
      return;
  }
  EXPECT_GT(drafted, accepted);
  EXPECT_GT(accepted, 500u);
}

TEST(DraftModel, IsChecked) {
  DecoderShape shape = shapeOf(8);
  EXPECT_TRUE(checkDraftModel(shape, 61).ok());
  EXPECT_EQ(checkDraftModel(shape, 62).message(),
            "it has a vocabulary of 61 tokens, and the model chooses among 62");
  shape.states = 2;
  EXPECT_EQ(checkDraftModel(shape, 61).message(),
            "its layers are recurrent, and cannot return from a token that is "
            "refused");
}

//===--- the distribution ---------------------------------------------------//

/// One distribution, whatever the text.
class TableModel final : public PagedModel {
public:
  explicit TableModel(const std::vector<double> &shares) {
    sizes = shapeOf(80);
    sizes.context = 80;
    sizes.vocab = int64_t(shares.size());
    for (double share : shares)
      table.push_back(float(std::log(share)));
  }
  const DecoderShape &shape() const override { return sizes; }
  Status prefill(const CachedText &, std::span<const int32_t>,
                 const Wanted &) override {
    return Status::success();
  }
  Status decode(std::span<const CachedText>, std::span<const int32_t>,
                const Wanted &) override {
    return Status::success();
  }
  std::span<const float> logits(int64_t) const override { return table; }
  int32_t token(int64_t) const override { return kNoToken; }

private:
  DecoderShape sizes;
  std::vector<float> table;
};

TEST(DraftModel, LeavesTheDistributionOfTheModel) {
  const std::vector<double> shares{0.5, 0.2, 0.15, 0.1, 0.05};
  TableModel model(shares), other({0.4, 0.3, 0.1, 0.1, 0.1});
  TimedModel timed(model, kStep), draft(other, kDraft);
  Scheduler scheduler(timed, {.drafts = 3, .draft = &draft, .now = now});
  std::vector<int64_t> counts(shares.size());
  constexpr int64_t kTokens = 64, kRequests = (1 << 20) / kTokens;
  for (int64_t seed = 0; seed < kRequests; ++seed) {
    EngineRequest request;
    request.prompt = {1};
    request.maxTokens = kTokens;
    request.sampling.temperature = 1;
    request.sampling.seed = uint64_t(seed);
    auto sink = std::make_shared<Collected>();
    request.sink = sink;
    scheduler.add(uint64_t(seed), request, EngineClock::now());
    while (!scheduler.idle())
      ASSERT_TRUE(scheduler.step().ok());
    for (int32_t token : sink->tokens)
      ++counts[size_t(token)];
  }
  double square = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double expected = shares[i] * kTokens * kRequests;
    square += std::pow(double(counts[i]) - expected, 2) / expected;
  }
  EXPECT_LT(square, 18.5); // of 4 degrees of freedom: one in a thousand
  // The shares that both have, at the same random numbers, are 0.8.
  const EngineMetrics &metrics = scheduler.metrics();
  EXPECT_GT(metrics.draftTokens, 100000u);
  EXPECT_GT(double(metrics.acceptedTokens), 0.6 * double(metrics.draftTokens));
}

} // namespace
} // namespace tessera
