// Which requests run next: by priority, by what their tenants have had, by age.
#include "runtime/infer/engine/Scheduler.h"
#include "test/runtime/infer/engine/FakeModel.h"

#include <array>

#include <gtest/gtest.h>

namespace tessera {
namespace {

using testing::Collected;
using testing::FakeModel;
using testing::shapeOf;

TEST(Scheduler, FirstComeFirstServed) {
  FakeModel model(shapeOf(12));
  Scheduler scheduler(model, {.maxBatch = 1});
  std::vector<std::shared_ptr<Collected>> sinks;
  for (uint64_t id = 1; id <= 4; ++id) {
    EngineRequest request;
    request.prompt = {int32_t(id), 2, 3};
    request.maxTokens = 5;
    request.sink = sinks.emplace_back(std::make_shared<Collected>());
    scheduler.add(id, request, EngineClock::now());
  }
  for (size_t done = 0; !scheduler.idle();) {
    ASSERT_TRUE(scheduler.step().ok());
    for (size_t i = done + 1; i < sinks.size(); ++i)
      EXPECT_TRUE(sinks[i]->tokens.empty() || sinks[i - 1]->done);
    while (done < sinks.size() && sinks[done]->done)
      ++done;
  }
}

TEST(Scheduler, UrgentRequestsPreemptOthers) {
  FakeModel model(shapeOf(40));
  Scheduler scheduler(model, {.maxBatch = 2});
  auto add = [&](uint64_t id, int64_t priority) {
    EngineRequest request;
    request.prompt = {int32_t(id), 2, 3};
    request.maxTokens = id == 1 ? 30 : 12;
    request.priority = priority;
    auto sink = std::make_shared<Collected>();
    request.sink = sink;
    scheduler.add(id, request, EngineClock::now());
    return sink;
  };
  auto first = add(1, 0), second = add(2, 5);
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(scheduler.step().ok());
  EXPECT_FALSE(second->tokens.empty());
  auto later = add(3, 5), urgent = add(4, -1);
  const auto before = second->tokens.size();
  while (!urgent->done) {
    EXPECT_TRUE(later->tokens.empty());
    EXPECT_EQ(second->tokens.size(), before);
    ASSERT_TRUE(scheduler.step().ok());
  }
  EXPECT_GT(first->tokens.size(), 12U);
  EXPECT_EQ(scheduler.metrics().preemptions, 1u);
  while (!scheduler.idle())
    ASSERT_TRUE(scheduler.step().ok());
  EXPECT_EQ(second->result.generatedTokens, 12);
  EXPECT_EQ(later->result.generatedTokens, 12);
}

TEST(Scheduler, PreemptsNothingThatDoesNotHelp) {
  FakeModel model(shapeOf(10)); // of 4 tokens
  Scheduler scheduler(model, {});
  std::vector<std::shared_ptr<Collected>> sinks;
  auto add = [&](uint64_t id, int64_t priority, size_t prompt, int64_t tokens) {
    EngineRequest request;
    request.prompt.assign(prompt, int32_t(id));
    request.maxTokens = tokens;
    request.priority = priority;
    request.sink = sinks.emplace_back(std::make_shared<Collected>());
    scheduler.add(id, request, EngineClock::now());
  };
  add(1, -1, 21, 10), add(2, 0, 2, 6);
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(scheduler.step().ok());
  add(3, -1, 20, 1); // its pages are held by the first
  ASSERT_TRUE(scheduler.step().ok());
  EXPECT_FALSE(sinks[0]->done);
  EXPECT_EQ(scheduler.metrics().preemptions, 0u);
  while (!scheduler.idle())
    ASSERT_TRUE(scheduler.step().ok());
  EXPECT_EQ(sinks[2]->result.generatedTokens, 1);
}

TEST(Scheduler, ATenantThatArrivesIsNotBehindThoseThatWait) {
  FakeModel model(shapeOf(64));
  Scheduler scheduler(model, {.maxBatch = 1});
  uint64_t id = 0;
  auto add = [&](uint64_t tenant, size_t prompt) {
    EngineRequest request;
    request.prompt.assign(prompt, int32_t(++id));
    request.maxTokens = 1;
    request.tenant = tenant;
    auto sink = std::make_shared<Collected>();
    request.sink = sink;
    scheduler.add(id, request, EngineClock::now());
    return sink;
  };
  add(0, 30);
  std::vector<std::shared_ptr<Collected>> waiting;
  for (int i = 0; i < 8; ++i)
    waiting.push_back(add(2, 1));
  ASSERT_TRUE(scheduler.step().ok()); // of tenant 0, which has had much now
  auto arrived = add(1, 1);
  while (!arrived->done)
    ASSERT_TRUE(scheduler.step().ok());
  EXPECT_LE(std::ranges::count_if(
                waiting, [](const auto &sink) { return bool(sink->done); }),
            2);
}

TEST(Scheduler, TenantsHaveEqualShares) {
  // One tenant has sent 40 requests before another begins to send; then both
  // have had about as much at any time, whatever the lengths.
  FakeModel model(shapeOf(64));
  Scheduler scheduler(model, {.maxBatch = 2});
  uint64_t id = 0;
  std::array<std::vector<std::shared_ptr<Collected>>, 2> sinks;
  auto add = [&](uint64_t tenant, int32_t prompt, int64_t tokens) {
    EngineRequest request;
    for (int32_t i = 0; i < prompt; ++i) // no common prefixes
      request.prompt.push_back(int32_t((++id * 7 + uint64_t(i)) % 61));
    request.maxTokens = tokens;
    request.tenant = tenant;
    request.sink = sinks[tenant].emplace_back(std::make_shared<Collected>());
    scheduler.add(id, request, EngineClock::now());
  };
  auto generated = [&](uint64_t tenant) {
    int64_t sum = 0;
    for (const auto &sink : sinks[tenant])
      sum += int64_t(sink->tokens.size());
    return sum;
  };
  for (int i = 0; i < 40; ++i)
    add(0, 1, 20);
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(scheduler.step().ok());
  const int64_t head = generated(0);
  EXPECT_GT(head, 80);
  for (int i = 0; i < 40; ++i)
    add(1, 1, 5);
  for (int i = 0; i < 120; ++i) {
    ASSERT_TRUE(scheduler.step().ok());
    // Of at most two requests each; idle times of old give no claim.
    EXPECT_LE(std::abs(generated(0) - head - generated(1)), 2 * 21);
  }
  EXPECT_GT(generated(1), 70);
}

} // namespace
} // namespace tessera
