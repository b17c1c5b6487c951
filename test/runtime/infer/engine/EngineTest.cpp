// The engine's thread: limits, cancelling, draining, and a device that fails.
#include "runtime/infer/engine/Engine.h"
#include "test/runtime/infer/engine/FakeModel.h"

#include <thread>

#include <gtest/gtest.h>

namespace tessera {
namespace {

using testing::Collected;
using testing::FakeModel;
using Outcome = Submission::Outcome;

DecoderShape largeShape() {
  DecoderShape shape;
  shape.context = 100000;
  shape.page = 16;
  shape.pages = 20000;
  shape.chunk = 64;
  shape.vocab = 50;
  shape.buckets = {1, 2, 4, 8};
  return shape;
}

struct Asked {
  std::shared_ptr<Collected> sink = std::make_shared<Collected>();
  EngineRequest request;
  explicit Asked(int64_t tokens) {
    request.prompt = {1, 2, 3};
    request.maxTokens = tokens;
    request.sink = sink;
  }
};

void waitFor(const std::atomic<bool> &done) {
  while (!done)
    std::this_thread::yield();
}

TEST(Engine, RunsWhatManyThreadsAsk) {
  FakeModel model(largeShape());
  Engine engine(model, {});
  std::vector<Asked> asked(40, Asked(1));
  for (size_t i = 0; i < asked.size(); ++i)
    asked[i] = Asked(1 + int64_t(i));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = t; i < asked.size(); i += 4)
        EXPECT_EQ(engine.submit({asked[i].request}).outcome, Outcome::accepted);
    });
  for (std::thread &thread : threads)
    thread.join();
  engine.drain(EngineClock::now() + std::chrono::hours(1));
  for (size_t i = 0; i < asked.size(); ++i)
    EXPECT_EQ(asked[i].sink->tokens.size(), i + 1);
  EXPECT_EQ(engine.metrics().pagesUsed, 0);
  EXPECT_EQ(engine.metrics().generatedTokens, 820u);
  EXPECT_EQ(engine.submit({asked[0].request}).outcome, Outcome::closed);
}

TEST(Engine, RefusesBeyondItsLimitsAndTakesAgain) {
  FakeModel model(largeShape());
  Engine engine(model, {.scheduler = {}, .maxRequests = 2, .maxTokens = 1200});
  Asked first(1000), second(500), third(1);
  Submission taken = engine.submit({first.request});
  EXPECT_EQ(taken.outcome, Outcome::accepted);
  // 1003 + 503 tokens, and three requests.
  EXPECT_EQ(engine.submit({second.request}).outcome, Outcome::full);
  EXPECT_EQ(engine.submit({third.request, third.request}).outcome,
            Outcome::full);
  // What is too much for an empty queue is not to be tried again.
  Asked large(1198);
  EXPECT_EQ(engine.submit({large.request}).outcome, Outcome::invalid);
  EXPECT_EQ(
      engine.submit({third.request, third.request, third.request}).outcome,
      Outcome::invalid);
  engine.cancel(taken.ids[0]);
  waitFor(first.sink->done);
  while (engine.submit({second.request}).outcome == Outcome::full)
    std::this_thread::yield();
  engine.drain(EngineClock::now() + std::chrono::hours(1));
  EXPECT_EQ(second.sink->tokens.size(), 500u);
  EXPECT_TRUE(first.sink->result.reason == FinishReason::cancelled ||
              first.sink->tokens.size() == 1000u);
}

TEST(Engine, CancelsWhatIsLeftAtTheDeadline) {
  FakeModel model(largeShape());
  Asked endless(99000), waiting(99000);
  Engine engine(model, {.scheduler = {.maxBatch = 1}});
  engine.submit({endless.request});
  engine.submit({waiting.request});
  engine.drain(EngineClock::now());
  EXPECT_EQ(endless.sink->result.reason, FinishReason::cancelled);
  EXPECT_EQ(waiting.sink->result.reason, FinishReason::cancelled);
  EXPECT_EQ(endless.sink->ends + waiting.sink->ends, 2);
}

TEST(Engine, IsDrainedBySeveralAtOnce) {
  FakeModel model(largeShape());
  for (int round = 0; round < 50; ++round) {
    Asked one(3);
    Engine engine(model, {});
    engine.submit({one.request});
    std::vector<std::thread> drainers;
    for (int i = 0; i < 4; ++i)
      drainers.emplace_back([&] {
        engine.drain(EngineClock::now() + std::chrono::hours(1));
        // All is over for whoever returns, not for the first one only.
        EXPECT_EQ(one.sink->ends, 1);
      });
    for (std::thread &drainer : drainers)
      drainer.join();
    EXPECT_FALSE(engine.isBusy());
    EXPECT_TRUE(engine.lastComputed().has_value());
  }
}

TEST(Engine, DiesWithItsDeviceAndSaysWhy) {
  FakeModel model(largeShape());
  Engine engine(model, {});
  Asked asked(99000);
  engine.submit({asked.request});
  model.broken = true;
  waitFor(asked.sink->done);
  EXPECT_EQ(asked.sink->result.reason, FinishReason::error);
  EXPECT_EQ(asked.sink->result.message, "the device is gone");
  while (!engine.deathCause())
    std::this_thread::yield();
  Submission late = engine.submit({asked.request});
  EXPECT_EQ(late.outcome, Outcome::closed);
  EXPECT_NE(late.message.find("the device is gone"), std::string::npos);
}

TEST(Engine, RefusesWhatCanNeverRun) {
  FakeModel model(largeShape());
  Engine engine(model, {});
  Asked fine(1), bad(1);
  bad.request.prompt = {50};
  Submission refused = engine.submit({fine.request, bad.request});
  EXPECT_EQ(refused.outcome, Outcome::invalid);
  EXPECT_NE(refused.message.find("token 50"), std::string::npos);
  engine.drain(EngineClock::now() + std::chrono::hours(1));
  EXPECT_EQ(fine.sink->ends, 0); // all or none
}

} // namespace
} // namespace tessera
