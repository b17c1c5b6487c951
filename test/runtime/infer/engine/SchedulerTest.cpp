// Thousands of random schedules over a model of hashes: whatever else runs,
// comes, goes or is cancelled, a request gives what it gives alone, and at the
// end every page is free.
#include "runtime/infer/engine/Scheduler.h"
#include "test/runtime/infer/engine/FakeModel.h"
#include "test/runtime/infer/engine/RandomPlan.h"

#include <array>

#include <gtest/gtest.h>

namespace tessera {
namespace {

using testing::alone;
using testing::Collected;
using testing::expectAsAlone;
using testing::FakeModel;
using testing::Planned;
using testing::Random;
using testing::randomPlan;
using testing::shapeOf;

TEST(Scheduler, GivesEachWhatItGivesAlone) {
  uint64_t preemptions = 0, hits = 0, batched = 0, drafted = 0, accepted = 0;
  int64_t unread = 0; // calls whose logits stayed where they were
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    // From no more pages than one text needs to enough for all.
    // Tokens are drawn by the model, or by logits where it is told less.
    DecoderShape shape = shapeOf(10 + random(20));
    shape.changes = std::array{-1, 0, 3, 61}[seed / 4 % 4];
    FakeModel model(shape);
    SchedulerOptions options = {.maxBatch = random(5)};
    options.drafts = int64_t(seed) % 4;
    Scheduler scheduler(model, options);
    std::vector<Planned> plan = randomPlan(random);
    run(scheduler, model.shape(), plan);
    for (const Planned &each : plan)
      expectAsAlone(each);
    const EngineMetrics &metrics = scheduler.metrics();
    EXPECT_EQ(metrics.pagesUsed, 0);
    preemptions += metrics.preemptions;
    hits += metrics.prefixHits;
    batched += model.mostTogether > 2;
    unread += model.answered;
    drafted += metrics.draftTokens;
    accepted += metrics.acceptedTokens;
    if (::testing::Test::HasFailure())
      return;
  }
  // Or nothing was tried.
  EXPECT_GT(preemptions, 500u);
  EXPECT_GT(hits, 1000u);
  EXPECT_GT(batched, 500u);
  EXPECT_GT(unread, 10000);
  EXPECT_GT(drafted, accepted);
  EXPECT_GT(accepted, 100u);
}

// Where the tokens of a prompt see each other it is one chunk, also when it is
// read again, and no later prompt takes a beginning of it.
TEST(Scheduler, ReadsWholePrompts) {
  uint64_t preemptions = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    DecoderShape shape = shapeOf(10 + random(20));
    shape.chunk = 24;
    shape.hasWholePrompts = true;
    FakeModel model(shape);
    Scheduler scheduler(model, {.drafts = int64_t(seed) % 4});
    std::vector<Planned> plan = randomPlan(random);
    for (Planned &each : plan)
      each.request.scoresPrompt = false;
    run(scheduler, shape, plan);
    DecoderShape large = shape;
    large.pages = 64;
    for (const Planned &each : plan)
      expectAsAlone(each, large);
    EXPECT_EQ(scheduler.metrics().pagesUsed, 0);
    EXPECT_EQ(scheduler.metrics().prefixHits, 0u);
    preemptions += scheduler.metrics().preemptions;
    if (::testing::Test::HasFailure())
      return;
  }
  EXPECT_GT(preemptions, 50u);
}

TEST(Scheduler, KeepsTheStatesOfSequencesApart) {
  int64_t preemptions = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    DecoderShape shape = shapeOf(10 + random(20));
    shape.states = 2 + random(3);
    FakeModel model(shape);
    Scheduler scheduler(model, {.drafts = int64_t(seed) % 4});
    std::vector<Planned> plan = randomPlan(random);
    run(scheduler, shape, plan);
    EXPECT_LE(int64_t(model.mostTogether), shape.states);
    DecoderShape large = shape;
    large.pages = 64;
    for (const Planned &each : plan)
      expectAsAlone(each, large);
    EXPECT_EQ(scheduler.metrics().pagesUsed, 0);
    EXPECT_EQ(scheduler.metrics().prefixHits, 0u);
    EXPECT_EQ(scheduler.metrics().draftTokens, 0u);
    preemptions += scheduler.metrics().preemptions;
    if (::testing::Test::HasFailure())
      return;
  }
  EXPECT_GT(preemptions, 50u);
}

TEST(Scheduler, ScoresWithStatesDelayNoOthers) {
  DecoderShape shape = shapeOf(40);
  shape.states = 4;
  FakeModel model(shape);
  Scheduler scheduler(model, {});
  std::vector<std::shared_ptr<Collected>> sinks;
  auto add = [&](uint64_t id, size_t prompt, bool scores) {
    EngineRequest request;
    request.prompt.assign(prompt, int32_t(id));
    request.maxTokens = 3;
    request.scoresPrompt = scores;
    if (scores)
      request.logprobs = 0;
    request.sink = sinks.emplace_back(std::make_shared<Collected>());
    scheduler.add(id, request, EngineClock::now());
  };
  add(1, 30, true), add(2, 30, true);
  ASSERT_TRUE(scheduler.step().ok());
  add(3, 2, false);
  for (int i = 0; i < 6; ++i)
    ASSERT_TRUE(scheduler.step().ok());
  EXPECT_TRUE(sinks[2]->done);
  EXPECT_EQ(sinks[0]->scores.size(), sinks[1]->scores.size()); // side by side
  while (!scheduler.idle())
    ASSERT_TRUE(scheduler.step().ok());
  EXPECT_EQ(sinks[1]->scores.size(), 29U);
}

TEST(Scheduler, RefusesWhatWholePromptsDoNotAllow) {
  DecoderShape shape = shapeOf(20);
  shape.hasWholePrompts = true;
  EngineRequest request;
  request.prompt.assign(7, 1);
  request.maxTokens = 1;
  EXPECT_EQ(checkRequest(request, shape).message(),
            "the prompt has 7 tokens, which see each other (attention.prompts: "
            "bidirectional), and at most 6 are read at once; for a model "
            "directory, raise it by --set inference.chunk=N");
  request.prompt.pop_back();
  EXPECT_TRUE(checkRequest(request, shape).ok());
  request.logprobs = 1;
  request.scoresPrompt = true;
  EXPECT_EQ(checkRequest(request, shape).message(),
            "log-probabilities of a prompt are not supported with "
            "attention.prompts: bidirectional, where its tokens see each "
            "other");
}

TEST(Scheduler, GuessesSaveSteps) {
  // A bias leaves the model one token: soon it has said everything before.
  EngineRequest request;
  request.prompt = {7};
  request.maxTokens = 39;
  request.sampling.temperature = 0;
  request.sampling.bias = {{3, 1e6f}};
  auto iterations = [&](int64_t drafts) {
    FakeModel model(shapeOf(20));
    Scheduler scheduler(model, {.drafts = drafts});
    auto sink = std::make_shared<Collected>();
    request.sink = sink;
    scheduler.add(1, request, EngineClock::now());
    while (!scheduler.idle())
      EXPECT_TRUE(scheduler.step().ok());
    EXPECT_EQ(sink->tokens, std::vector<int32_t>(39, 3));
    return scheduler.metrics().iterations;
  };
  EXPECT_EQ(iterations(0), 39u);
  EXPECT_LT(iterations(3), 15u);
}

// A token of the prompt is as likely as if it had been generated there.
TEST(Scheduler, ScoresAPromptAsWhatIsGenerated) {
  EngineRequest request;
  request.prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3};
  request.logprobs = 3;
  request.scoresPrompt = true;
  for (int64_t tokens : {0, 1, 5}) {
    request.maxTokens = tokens;
    auto whole = alone(request);
    EXPECT_EQ(whole->result.reason, FinishReason::length);
    EXPECT_EQ(int64_t(whole->tokens.size()), tokens);
    ASSERT_EQ(whole->scores.size(), request.prompt.size() - 1);
    for (size_t place = 1; place < request.prompt.size(); ++place) {
      EngineRequest part;
      part.prompt.assign(request.prompt.begin(),
                         request.prompt.begin() + long(place));
      part.maxTokens = 1;
      part.logprobs = 3;
      part.sampling.bias = {{request.prompt[place], 1e6f}};
      auto drawn = alone(part);
      const TokenEvent &scored = whole->scores[place - 1];
      EXPECT_EQ(drawn->tokens.at(0), scored.token);
      EXPECT_EQ(drawn->events.at(0).logprobs.chosen, scored.logprobs.chosen);
      EXPECT_EQ(drawn->events.at(0).logprobs.top, scored.logprobs.top);
    }
  }
}

TEST(Scheduler, ReadsAPromptOfWhichNothingFollows) {
  FakeModel model(shapeOf(20));
  Scheduler scheduler(model, {});
  auto cachedOf = [&](std::vector<int32_t> prompt) {
    auto sink = std::make_shared<Collected>();
    EngineRequest request;
    request.prompt = std::move(prompt);
    request.maxTokens = 0;
    request.sink = sink;
    EXPECT_TRUE(checkRequest(request, model.shape()).ok());
    scheduler.add(1, request, EngineClock::now());
    while (!scheduler.idle())
      EXPECT_TRUE(scheduler.step().ok());
    EXPECT_EQ(sink->ends, 1);
    EXPECT_TRUE(sink->tokens.empty());
    EXPECT_EQ(sink->result.reason, FinishReason::length);
    return sink->result.cachedTokens;
  };
  std::vector<int32_t> context(40), page(5);
  EXPECT_EQ(cachedOf(context), 0);
  EXPECT_EQ(cachedOf(context), 36); // whole pages before the last token
  EXPECT_EQ(cachedOf(page), 4);     // of which nothing is left to read
  EXPECT_EQ(cachedOf({7}), 0);
  EXPECT_EQ(scheduler.metrics().pagesUsed, 0);
}

TEST(Scheduler, SharesWholePagesOfABeginning) {
  FakeModel model(shapeOf(20));
  Scheduler scheduler(model, {});
  EngineRequest request;
  for (int32_t i = 0; i < 13; ++i)
    request.prompt.push_back(i);
  request.maxTokens = 2;
  std::vector<int64_t> cached;
  for (uint64_t id = 1; id <= 3; ++id) {
    auto sink = std::make_shared<Collected>();
    request.sink = sink;
    if (id == 3)
      request.prompt[5] = 60; // the second page is another
    scheduler.add(id, request, EngineClock::now());
    while (!scheduler.idle())
      ASSERT_TRUE(scheduler.step().ok());
    cached.push_back(sink->result.cachedTokens);
  }
  EXPECT_EQ(cached, (std::vector<int64_t>{0, 12, 4}));
  EXPECT_EQ(scheduler.metrics().prefixQueries, 39u);
  EXPECT_EQ(scheduler.metrics().prefixHits, 16u);
}

TEST(Scheduler, EndsAtDeadlinesAndWhenThereIsEnough) {
  FakeModel model(shapeOf(20));
  Scheduler scheduler(model, {});
  auto late = std::make_shared<Collected>();
  auto few = std::make_shared<Collected>(3);
  EngineRequest request;
  request.prompt = {1, 2, 3};
  request.maxTokens = 30;
  request.sink = few;
  scheduler.add(1, request, EngineClock::now());
  request.sink = late;
  request.deadline = EngineClock::now() - std::chrono::seconds(1);
  scheduler.add(2, request, EngineClock::now());
  while (!scheduler.idle())
    ASSERT_TRUE(scheduler.step().ok());
  EXPECT_EQ(few->tokens.size(), 3u);
  EXPECT_EQ(few->result.reason, FinishReason::stop);
  EXPECT_EQ(late->tokens.size(), 0u);
  EXPECT_EQ(late->result.reason, FinishReason::deadline);
}

TEST(Scheduler, CountsWhatWasReadOfARequestThatIsCutOff) {
  FakeModel model(shapeOf(20));
  const int64_t chunk = model.shape().chunk;
  Scheduler scheduler(model, {});
  EngineRequest request;
  request.prompt.assign(size_t(chunk) + 2, 1);
  request.maxTokens = 3;
  std::vector<int64_t> read;
  for (int steps : {0, 1, 2, 3}) {
    auto sink = std::make_shared<Collected>();
    request.sink = sink;
    request.prompt[0] = steps; // none begin alike
    scheduler.add(uint64_t(steps) + 1, request, EngineClock::now());
    for (int i = 0; i < steps; ++i)
      ASSERT_TRUE(scheduler.step().ok());
    scheduler.cancel(uint64_t(steps) + 1);
    read.push_back(sink->result.readTokens);
  }
  EXPECT_EQ(read, (std::vector<int64_t>{0, chunk, chunk + 2, chunk + 2}));
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  DecoderShape shape = shapeOf(3);
  EngineRequest request;
  auto message = [&] { return checkRequest(request, shape).message(); };
  EXPECT_EQ(message(), "the prompt is empty");
  request.prompt = {61};
  EXPECT_EQ(message(), "token 61 of the prompt is outside the vocabulary of "
                       "61");
  request.prompt = {1};
  request.maxTokens = -1;
  EXPECT_EQ(message(),
            "the number of tokens to generate must be at least 0, got: -1");
  request.maxTokens = INT64_MAX;
  EXPECT_NE(message().find("at most the context of 40"), std::string::npos);
  request.maxTokens = 12;
  EXPECT_EQ(message(),
            "13 tokens need 4 pages of 4 tokens, the KV cache has 3");
  request.maxTokens = 11;
  EXPECT_EQ(message(), "");
  request.scoresPrompt = true;
  EXPECT_EQ(message(),
            "a prompt is scored by logprobs, which are not requested");
  request.scoresPrompt = false;
  request.sampling.minP = 2;
  EXPECT_NE(message().find("min-p"), std::string::npos);
}

} // namespace
} // namespace tessera
