// The scheduler over compiled programs on a CPU and on the emulated GPU. Their
// kernels add up a row's products in the same order whatever the batch, the
// chunk and the place in them, so a request has the same bits alone, in a
// batch, after a preemption and on pages that another request filled.
#include "runtime/infer/DecodePrograms.h"
#include "runtime/infer/engine/Scheduler.h"
#include "test/runtime/infer/TinyDecoder.h"
#include "test/runtime/infer/engine/FakeModel.h"

#include <algorithm>

namespace tessera {
namespace {

using testing::Collected;

class CompiledEngineTest : public ::testing::TestWithParam<const char *> {
protected:
  void SetUp() override { testing::openTiny(GetParam(), session, model); }

  EngineRequest request(int i) {
    EngineRequest request;
    // Neighbours have other adapters, or none.
    if (int64_t adapter = i % 4; adapter < model->shape().adapters) {
      auto slot = std::make_shared<AdapterSlot>();
      slot->slot = int32_t(adapter), slot->number = uint64_t(adapter) + 1;
      request.adapter = slot;
    }
    int beginning = i % 2 * 17;
    for (int at = 0; at < 6 + 5 * i % 18; ++at)
      request.prompt.push_back(at < 16 ? (at * at + beginning) % 67
                                       : (at * i) % 67);
    request.maxTokens = 10 + i % 4;
    request.sampling.temperature = float(i % 3) * 0.6f;
    request.sampling.seed = uint64_t(i);
    request.logprobs = 3;
    if (i % 4 == 0)
      request.sampling.bias = {{5, 1e6f}}; // what repeats can be drafted
    return request;
  }

  /// Twelve requests, so many together.
  std::vector<std::shared_ptr<Collected>> run(int together,
                                              int64_t drafts = 0) {
    Scheduler scheduler(*model, {.drafts = drafts});
    std::vector<std::shared_ptr<Collected>> sinks;
    for (int i = 0; i < 12; ++i) {
      EngineRequest next = request(i);
      next.sink = sinks.emplace_back(std::make_shared<Collected>());
      scheduler.add(uint64_t(i + 1), next, EngineClock::now());
      while ((i + 1) % together == 0 && !scheduler.idle())
        EXPECT_TRUE(scheduler.step().ok());
    }
    EXPECT_TRUE(scheduler.idle());
    EXPECT_EQ(scheduler.metrics().pagesUsed, 0);
    preemptions = scheduler.metrics().preemptions;
    hits = scheduler.metrics().prefixHits;
    accepted = scheduler.metrics().acceptedTokens;
    return sinks;
  }

  using Sinks = std::vector<std::shared_ptr<Collected>>;
  static void expectSame(const Sinks &some, const Sinks &solo) {
    for (size_t i = 0; i < solo.size(); ++i) {
      ASSERT_EQ(solo[i]->result.generatedTokens, 10 + int64_t(i) % 4);
      EXPECT_EQ(some[i]->tokens, solo[i]->tokens);
      for (size_t t = 0; t < solo[i]->events.size(); ++t)
        EXPECT_EQ(some[i]->events[t].logprobs.top,
                  solo[i]->events[t].logprobs.top);
    }
  }

  std::unique_ptr<hal::Session> session;
  std::unique_ptr<DecodePrograms> model;
  uint64_t preemptions = 0, hits = 0, accepted = 0;
};

// A prompt is scored in other programs' rows than those that read it.
TEST_P(CompiledEngineTest, ScoresAPromptAsWhatIsGenerated) {
  auto run = [&](EngineRequest next) {
    Scheduler scheduler(*model, {});
    auto sink = std::make_shared<Collected>();
    next.sink = sink;
    scheduler.add(1, next, EngineClock::now());
    while (!scheduler.idle())
      EXPECT_TRUE(scheduler.step().ok());
    return sink;
  };
  EngineRequest next = request(3);
  auto generated = run(next);
  size_t prompt = next.prompt.size();
  next.prompt.insert(next.prompt.end(), generated->tokens.begin(),
                     generated->tokens.end());
  next.scoresPrompt = true;
  next.maxTokens = 0;
  auto scored = run(next);
  ASSERT_EQ(scored->scores.size(), next.prompt.size() - 1);
  for (size_t i = 0; i < generated->tokens.size(); ++i) {
    const TokenEvent &again = scored->scores[prompt - 1 + i];
    EXPECT_EQ(again.token, generated->tokens[i]);
    EXPECT_EQ(again.logprobs.chosen, generated->events[i].logprobs.chosen);
    EXPECT_EQ(again.logprobs.top, generated->events[i].logprobs.top);
  }
}

TEST_P(CompiledEngineTest, NeighboursChangeNoBit) {
  auto solo = run(1);
  auto together = run(12);
  EXPECT_GT(preemptions, 0u);
  EXPECT_GT(hits, 0u);
  expectSame(together, solo);
}

// Rows of one text at once are the rows that come one by one.
TEST_P(CompiledEngineTest, GuessesChangeNoBit) {
  auto solo = run(1);
  auto alone = run(1, 2);
  EXPECT_GT(accepted, 10u);
  expectSame(alone, solo);
  expectSame(run(12, 2), solo);
}

// Prompts are read whole, and again after a preemption; no page is shared.
class WholePromptsTest : public CompiledEngineTest {};

TEST_P(WholePromptsTest, NeighboursChangeNoBit) {
  auto solo = run(1);
  auto together = run(12, 2);
  EXPECT_GT(preemptions, 0u);
  EXPECT_EQ(hits, 0u);
  expectSame(together, solo);
}

static std::string nameOf(const ::testing::TestParamInfo<const char *> &info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '@', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Precisions, WholePromptsTest,
                         ::testing::Values("fp32_prompts", "bf16_prompts",
                                           "bf16_prompts@sm_80"),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Precisions, CompiledEngineTest,
                         ::testing::Values("fp32", "bf16", "fp32_int8",
                                           "bf16_int8", "bf16_int4", "fp32_kv",
                                           "bf16_kv", "fp32_lora", "bf16_lora",
                                           "bf16_kv@sm_80"),
                         nameOf);

} // namespace
} // namespace tessera
