// What a text's settings make of logits; drawing itself is tested with
// generation.
#include "runtime/infer/Sampler.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace tessera {
namespace {

const std::vector<float> kLogits = {std::log(0.1f), std::log(0.5f),
                                    std::log(0.05f), std::log(0.35f)};

/// The tokens that are ever drawn.
std::set<int32_t> drawn(Sampler sampler, std::span<const float> logits) {
  std::set<int32_t> tokens;
  for (uint64_t draw = 0; draw < 400; ++draw)
    tokens.insert(*sampler.sample(logits, draw));
  return tokens;
}

int32_t greedy(SamplingOptions options, std::span<const int32_t> prompt,
               std::span<const int32_t> generated) {
  options.temperature = 0;
  Sampler sampler(options);
  sampler.sawPrompt(prompt);
  for (int32_t token : generated)
    sampler.saw(token);
  return *sampler.sample(kLogits, 0);
}

TEST(SamplerSettings, MinPIsMeasuredByTheLikeliest) {
  SamplingOptions options;
  options.temperature = 1;
  options.minP = 0.19f; // of 0.5
  EXPECT_EQ(drawn(Sampler(options), kLogits), (std::set<int32_t>{0, 1, 3}));
  options.minP = 0.21f;
  EXPECT_EQ(drawn(Sampler(options), kLogits), (std::set<int32_t>{1, 3}));
  options.minP = 1;
  EXPECT_EQ(drawn(Sampler(options), kLogits), (std::set<int32_t>{1}));
}

TEST(SamplerSettings, PenaltiesLookAtTheirTokens) {
  const std::vector<int32_t> one = {1}, twice = {1, 1}, none;
  SamplingOptions options;
  EXPECT_EQ(greedy(options, one, one), 1);
  // ln 0.5 - 0.2 is above ln 0.35, minus 0.4 below.
  options.frequencyPenalty = 0.2f;
  EXPECT_EQ(greedy(options, twice, one), 1);
  EXPECT_EQ(greedy(options, none, twice), 3);
  options.frequencyPenalty = 0;
  options.presencePenalty = 0.2f;
  EXPECT_EQ(greedy(options, none, twice), 1);
  options.presencePenalty = 0.4f;
  EXPECT_EQ(greedy(options, one, none), 1); // not the prompt's
  EXPECT_EQ(greedy(options, none, one), 3);
  options.presencePenalty = 0;
  options.repetitionPenalty = 2; // ln 0.5 doubled is ln 0.25
  EXPECT_EQ(greedy(options, one, none), 3);
  EXPECT_EQ(greedy(options, none, one), 3);
  options.repetitionPenalty = 1.4f; // 0.5^1.4 = 0.38
  EXPECT_EQ(greedy(options, one, none), 1);
}

TEST(SamplerSettings, BiasIsAddedOrForbids) {
  SamplingOptions options;
  options.bias = {{2, 3.0f}};
  EXPECT_EQ(greedy(options, {}, {}), 2);
  options.bias = {{1, -100.0f}, {1000, 100.0f}}; // the latter is no choice
  EXPECT_EQ(greedy(options, {}, {}), 3);
}

TEST(SamplerSettings, TopPOfManyTokensKeepsTheLikeliest) {
  // 1000 tokens, of which the last 100 are e times as likely: 0.2 of all the
  // probability is within them, so top-p has to look beyond what it sorts
  // first.
  std::vector<float> logits(1000, 0.0f);
  std::fill(logits.end() - 100, logits.end(), 1.0f);
  SamplingOptions options;
  options.temperature = 1;
  options.topP = 0.2f;
  std::set<int32_t> tokens = drawn(Sampler(options), logits);
  EXPECT_GE(*tokens.begin(), 900);
  EXPECT_GT(tokens.size(), 64u);
  options.topP = 0.3f; // 0.232 are the hundred's
  tokens = drawn(Sampler(options), logits);
  EXPECT_LT(*tokens.begin(), 900);
  // Of the others, equally likely, those of lower index.
  EXPECT_LT(*std::prev(tokens.lower_bound(900)), 100);
}

TEST(SamplerSettings, LogprobsAreThoseOfTheSoftmax) {
  TokenLogprobs logprobs = logprobsOf(kLogits, 0, 2);
  EXPECT_NEAR(logprobs.chosen, std::log(0.1), 1e-6);
  ASSERT_EQ(logprobs.top.size(), 2u);
  EXPECT_EQ(logprobs.top[0].first, 1);
  EXPECT_NEAR(logprobs.top[0].second, std::log(0.5), 1e-6);
  EXPECT_EQ(logprobs.top[1].first, 3);
  EXPECT_EQ(logprobsOf(kLogits, 1, 20).top.size(), 4u);
}

} // namespace
} // namespace tessera
