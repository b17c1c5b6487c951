// Requests from several threads before a model whose vector of a text is a
// function of its tokens alone.
#include "runtime/infer/engine/EmbedEngine.h"
#include "runtime/support/SplitMix64.h"

#include <atomic>
#include <future>
#include <semaphore>

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Outcome = Submission::Outcome;

class SumModel final : public EmbeddingModel {
public:
  SumModel() { sizes = {20, 2, 100, 4, {8, 16, 20}}; }
  const EmbeddingShape &shape() const override { return sizes; }
  Status embed(std::span<const TokenSequence> sequences,
               std::span<float> vectors) override {
    if (gate)
      gate->acquire();
    if (broken)
      return Status::error("the device is gone");
    EXPECT_TRUE(!sequences.empty() && int64_t(sequences.size()) <= sizes.batch);
    EXPECT_EQ(vectors.size(), sequences.size() * 2);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_EQ(sizes.lengthFor(int64_t(sequences[i].tokens.size())),
                sizes.lengthFor(int64_t(sequences[0].tokens.size())));
      vectors[2 * i] = vectors[2 * i + 1] = 0;
      for (std::size_t t = 0; t < sequences[i].tokens.size(); ++t) {
        vectors[2 * i] += float(sequences[i].tokens[t]);
        vectors[2 * i + 1] += float(t) * float(sequences[i].tokens[t]);
      }
    }
    largest = std::max(largest.load(), sequences.size());
    return Status::success();
  }

  EmbeddingShape sizes;
  std::counting_semaphore<> *gate = nullptr; ///< one permit a batch
  std::atomic<bool> broken = false;
  std::atomic<std::size_t> largest = 0;
};

std::vector<float>
expected(const std::vector<std::vector<int32_t>> &sequences) {
  SumModel model;
  std::vector<TokenSequence> spans(sequences.begin(), sequences.end());
  std::vector<float> vectors(sequences.size() * 2);
  EXPECT_TRUE(embedAll(model, spans, vectors).ok());
  return vectors;
}

/// Of every text by itself, which is what all others are compared with.
TEST(EmbedAll, PutsVectorsWhereTheirTextsAre) {
  std::vector<std::vector<int32_t>> sequences;
  SplitMix64 random(4);
  for (int i = 0; i < 30; ++i)
    sequences.emplace_back(1 + random() % 20, int32_t(random() % 100));
  std::vector<float> together = expected(sequences), alone;
  for (const auto &text : sequences) {
    auto one = expected({text});
    alone.insert(alone.end(), one.begin(), one.end());
  }
  EXPECT_EQ(together, alone);
}

TEST(EmbedAll, RefusesWhatTheModelDoesNotTake) {
  SumModel model;
  std::vector<float> room(2);
  for (const std::vector<int32_t> &text :
       {std::vector<int32_t>{}, std::vector<int32_t>(21, 1),
        std::vector<int32_t>{100}, std::vector<int32_t>{-1}}) {
    TokenSequence span(text);
    EXPECT_FALSE(embedAll(model, std::span(&span, 1), room).ok());
  }
}

EmbedRequest asking(std::vector<std::vector<int32_t>> sequences,
                    std::promise<EmbedResult> &promise) {
  return {std::move(sequences), std::nullopt, [&promise](EmbedResult result) {
            promise.set_value(std::move(result));
          }};
}

TEST(EmbedEngine, ManyThreadsGetTheirOwn) {
  SumModel model;
  EmbedEngine engine(model, {});
  std::vector<std::thread> clients;
  for (uint64_t seed = 1; seed <= 8; ++seed)
    clients.emplace_back([&engine, seed] {
      SplitMix64 random(seed);
      for (int turn = 0; turn < 50; ++turn) {
        std::vector<std::vector<int32_t>> sequences;
        for (uint64_t i = 0; i <= random() % 6; ++i)
          sequences.emplace_back(1 + random() % 20, int32_t(random() % 100));
        std::promise<EmbedResult> promise;
        ASSERT_EQ(engine.submit(asking(sequences, promise)).outcome,
                  Outcome::accepted);
        EmbedResult result = promise.get_future().get();
        ASSERT_EQ(result.reason, FinishReason::stop);
        ASSERT_EQ(result.vectors, expected(sequences));
      }
    });
  for (std::thread &each : clients)
    each.join();
  EXPECT_EQ(engine.metrics().finished[0], 400U);
  EXPECT_EQ(engine.metrics().running + engine.metrics().waiting, 0);
}

TEST(EmbedEngine, RequestsShareBatches) {
  SumModel model;
  std::counting_semaphore<> gate(0);
  model.gate = &gate;
  EmbedEngine engine(model, {});
  std::vector<std::promise<EmbedResult>> promises(9);
  for (int32_t i = 0; i < 9; ++i)
    engine.submit(asking({{i, 1}}, promises[size_t(i)]));
  gate.release(100);
  for (int32_t i = 0; i < 9; ++i)
    EXPECT_EQ(promises[size_t(i)].get_future().get().vectors,
              expected({{i, 1}}));
  EXPECT_EQ(model.largest, 4U);
  EXPECT_LE(engine.metrics().iterations, 4U); // 1, or up to 4; 4; 4; the rest
}

TEST(EmbedEngine, LimitsCancellingAndDraining) {
  SumModel model;
  std::counting_semaphore<> gate(0);
  model.gate = &gate;
  EngineOptions options;
  options.maxRequests = 2;
  options.maxTokens = 30;
  EmbedEngine engine(model, options);
  std::promise<EmbedResult> first, second, none;
  EXPECT_EQ(engine.submit(asking({}, none)).outcome, Outcome::invalid);
  EXPECT_EQ(engine.submit(asking({{100}}, none)).outcome, Outcome::invalid);
  EXPECT_EQ(
      engine
          .submit(asking(
              {std::vector<int32_t>(20, 1), std::vector<int32_t>(20, 1)}, none))
          .outcome,
      Outcome::invalid);
  engine.submit(asking({{1}}, first));
  Submission waits =
      engine.submit(asking({std::vector<int32_t>(12, 2)}, second));
  ASSERT_EQ(waits.outcome, Outcome::accepted);
  EXPECT_EQ(engine.submit(asking({{3}}, none)).outcome, Outcome::full);
  engine.cancel(waits.ids[0]);
  gate.release(100);
  EXPECT_EQ(first.get_future().get().reason, FinishReason::stop);
  EmbedResult cancelled = second.get_future().get();
  EXPECT_EQ(cancelled.reason, FinishReason::cancelled);
  EXPECT_TRUE(cancelled.vectors.empty());
  engine.drain(EngineClock::now() + std::chrono::seconds(10));
  EXPECT_EQ(engine.submit(asking({{1}}, none)).outcome, Outcome::closed);
}

TEST(EmbedEngine, TimeIsUp) {
  SumModel model;
  EmbedEngine engine(model, {});
  std::promise<EmbedResult> promise;
  EmbedRequest late = asking({{1}}, promise);
  late.deadline = EngineClock::now() - std::chrono::seconds(1);
  engine.submit(std::move(late));
  EXPECT_EQ(promise.get_future().get().reason, FinishReason::deadline);
}

TEST(EmbedEngine, ADeadDeviceEndsIt) {
  SumModel model;
  model.broken = true;
  EmbedEngine engine(model, {});
  std::promise<EmbedResult> promise, none;
  engine.submit(asking({{1}, {2}}, promise));
  EmbedResult result = promise.get_future().get();
  EXPECT_EQ(result.reason, FinishReason::error);
  EXPECT_EQ(result.message, "the device is gone");
  EXPECT_EQ(engine.deathCause(), "the device is gone");
  EXPECT_EQ(engine.submit(asking({{1}}, none)).outcome, Outcome::closed);
}

} // namespace
} // namespace tessera
