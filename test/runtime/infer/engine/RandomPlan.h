// Random requests that come and go, and what each of them gives alone.
#pragma once
#include "runtime/infer/engine/Scheduler.h"
#include "test/runtime/infer/engine/FakeModel.h"

#include <gtest/gtest.h>

namespace tessera::testing {

/// Numbers in [0, below).
class Random {
public:
  explicit Random(uint64_t seed) : next(seed) {}
  int64_t operator()(int64_t below) { return int64_t(next() % below); }

private:
  SplitMix64 next;
};

/// Prompts share beginnings, as chats with one system prompt do.
inline EngineRequest randomRequest(Random &random) {
  EngineRequest request;
  int64_t family = random(3), length = 1 + random(24);
  for (int64_t i = 0; i < length; ++i)
    request.prompt.push_back(
        int32_t(i < 9 ? (family * 7 + i * 5) % 61 : random(61)));
  request.maxTokens = random(41 - length);
  SamplingOptions &sampling = request.sampling;
  sampling.temperature = float(random(3)) * 0.7f;
  sampling.topK = random(2) * 9;
  sampling.topP = random(2) ? 1.0f : 0.8f;
  sampling.minP = random(2) ? 0.0f : 0.05f;
  sampling.repetitionPenalty = random(2) ? 1.0f : 1.3f;
  sampling.frequencyPenalty = random(2) ? 0.0f : 0.4f;
  sampling.seed = uint64_t(random(1000));
  if (random(2))
    request.stopTokens = {int32_t(random(61)), int32_t(random(61))};
  if (random(4) == 0) // a text that repeats itself can be drafted
    sampling.bias = {{int32_t(random(61)), 1e6f}};
  if (random(2))
    request.logprobs = random(4);
  request.scoresPrompt = request.logprobs && random(2);
  request.priority = random(2) * random(3) - 1;
  request.tenant = uint64_t(random(3));
  if (int64_t adapter = random(3)) {
    auto slot = std::make_shared<AdapterSlot>();
    slot->slot = int32_t(adapter - 1), slot->number = uint64_t(adapter);
    request.adapter = slot;
  }
  return request;
}

/// What the request gives alone, with all the pages there are.
inline std::shared_ptr<Collected>
alone(EngineRequest request, const DecoderShape &shape = shapeOf(64)) {
  FakeModel model(shape);
  Scheduler scheduler(model, {});
  auto sink = std::make_shared<Collected>();
  request.sink = sink;
  scheduler.add(1, request, EngineClock::now());
  while (!scheduler.idle())
    EXPECT_TRUE(scheduler.step().ok());
  return sink;
}

struct Planned {
  EngineRequest request;
  int64_t arrival, cancelled; ///< iterations; -1: never
  std::shared_ptr<Collected> sink = std::make_shared<Collected>();
};

inline std::vector<Planned> randomPlan(Random &random) {
  std::vector<Planned> plan(1 + random(9));
  for (Planned &each : plan) {
    each.request = randomRequest(random);
    each.request.sink = each.sink;
    each.arrival = random(30);
    each.cancelled = random(5) ? -1 : each.arrival + random(20);
  }
  return plan;
}

inline void expectScoresAsAlone(const Collected &sink, const Collected &solo) {
  ASSERT_LE(sink.scores.size(), solo.scores.size());
  for (size_t i = 0; i < sink.scores.size(); ++i) {
    EXPECT_EQ(sink.places[i], i + 1); // each once, in order
    EXPECT_EQ(sink.scores[i].token, solo.scores[i].token);
    EXPECT_EQ(sink.scores[i].logprobs.chosen, solo.scores[i].logprobs.chosen);
    EXPECT_EQ(sink.scores[i].logprobs.top, solo.scores[i].logprobs.top);
  }
}

inline void expectAsAlone(const Planned &each,
                          const DecoderShape &shape = shapeOf(64)) {
  std::shared_ptr<Collected> solo = alone(each.request, shape);
  EXPECT_EQ(each.sink->ends, 1);
  expectScoresAsAlone(*each.sink, *solo);
  if (each.sink->result.reason == FinishReason::cancelled) {
    EXPECT_GE(each.cancelled, 0);
    ASSERT_LE(each.sink->tokens.size(), solo->tokens.size());
    solo->tokens.resize(each.sink->tokens.size());
    EXPECT_EQ(each.sink->tokens, solo->tokens);
    return;
  }
  EXPECT_EQ(each.sink->tokens, solo->tokens);
  EXPECT_EQ(each.sink->scores.size(),
            each.request.scoresPrompt ? each.request.prompt.size() - 1 : 0);
  EXPECT_EQ(each.sink->result.reason, solo->result.reason);
  EXPECT_EQ(each.sink->result.generatedTokens,
            int64_t(each.sink->tokens.size()));
  for (size_t i = 0; i < each.sink->events.size(); ++i) {
    EXPECT_EQ(each.sink->events[i].logprobs.chosen,
              solo->events[i].logprobs.chosen);
    EXPECT_EQ(each.sink->events[i].logprobs.top, solo->events[i].logprobs.top);
  }
}

inline void run(Scheduler &scheduler, const DecoderShape &shape,
                const std::vector<Planned> &plan) {
  uint64_t id = 0;
  std::vector<uint64_t> ids(plan.size());
  for (int64_t now = 0; now < 60 || !scheduler.idle(); ++now) {
    ASSERT_LT(now, 5000) << "it does not get on";
    for (size_t i = 0; i < plan.size(); ++i) {
      if (plan[i].arrival == now) {
        ASSERT_TRUE(checkRequest(plan[i].request, shape).ok());
        scheduler.add(ids[i] = ++id, plan[i].request, EngineClock::now());
      }
      if (plan[i].cancelled == now && ids[i])
        scheduler.cancel(ids[i]);
    }
    ASSERT_TRUE(scheduler.step().ok());
  }
}

} // namespace tessera::testing
