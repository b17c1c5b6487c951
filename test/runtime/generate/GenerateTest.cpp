#include "runtime/generate/Generate.h"
#include "runtime/infer/Sampler.h"
#include "runtime/train/Checkpoint.h"
#include "test/runtime/train/BigramArtifact.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace tessera;
using namespace tessera::testing;

namespace {

StatusOr<tokenizer::Tokenizer> bytes() {
  return tokenizer::Tokenizer::parse(byteTokenizer(), "test");
}

/// How often each of `logits` is drawn in `draws` draws.
std::vector<int> histogram(std::vector<float> logits, SamplingOptions options,
                           int draws) {
  std::vector<int> counts(logits.size());
  Sampler sampler(options);
  for (int draw = 0; draw < draws; ++draw) {
    auto index = sampler.sample(logits, uint64_t(draw));
    EXPECT_TRUE(index.ok());
    ++counts[std::size_t(*index)];
  }
  return counts;
}

} // namespace

TEST(Sampler, GreedyTakesTheFirstOfTheBest) {
  EXPECT_EQ(histogram({1, 5, 5, -1}, {.temperature = 0}, 3),
            (std::vector<int>{0, 3, 0, 0}));
}

TEST(Sampler, DrawsWithTheSoftmaxProbabilities) {
  // Probabilities 1/6, 2/6, 3/6 at temperature 1; the standard deviation of a
  // count is below 78.
  auto counts = histogram({0, std::log(2.0f), std::log(3.0f)},
                          {.temperature = 1, .seed = 3}, 24000);
  EXPECT_NEAR(counts[0], 4000, 400);
  EXPECT_NEAR(counts[1], 8000, 400);
  EXPECT_NEAR(counts[2], 12000, 400);
  // Temperature 1/2 squares them: 1/14, 4/14, 9/14.
  counts = histogram({0, std::log(2.0f), std::log(3.0f)},
                     {.temperature = 0.5f, .seed = 3}, 14000);
  EXPECT_NEAR(counts[0], 1000, 400);
  EXPECT_NEAR(counts[1], 4000, 400);
  EXPECT_NEAR(counts[2], 9000, 400);
}

TEST(Sampler, TopKAndTopPCutTheTail) {
  std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.1f),
                               std::log(0.3f)};
  auto counts = histogram(logits, {.temperature = 1, .topK = 2}, 1000);
  EXPECT_EQ(counts[0] + counts[2], 0);
  EXPECT_GT(counts[3], 200);
  // 0.5 < 0.6 ≤ 0.5 + 0.3
  counts = histogram(logits, {.temperature = 1, .topP = 0.6f}, 1000);
  EXPECT_EQ(counts[0] + counts[2], 0);
  EXPECT_GT(counts[3], 200);
  counts = histogram(logits, {.temperature = 1, .topP = 0.4f}, 100);
  EXPECT_EQ(counts[1], 100);
  // Top-p counts among what top-k left: 0.5 / 0.8 = 0.625.
  counts = histogram(logits, {.temperature = 1, .topK = 2, .topP = 0.6f}, 100);
  EXPECT_EQ(counts[1], 100);
  // Equal weights: the lower indices stay.
  counts = histogram({0, 0, 0, 0}, {.temperature = 1, .topK = 2}, 100);
  EXPECT_EQ(counts[2] + counts[3], 0);
}

TEST(Sampler, IsAFunctionOfSeedAndDraw) {
  std::vector<float> logits(50, 0.0f);
  auto draws = [&](uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<int32_t> result;
    for (uint64_t draw : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
      result.push_back(*sampler.sample(logits, draw));
    return result;
  };
  EXPECT_EQ(draws(1), draws(1));
  EXPECT_NE(draws(1), draws(2));
  EXPECT_NE(draws(1), draws(uint64_t(1) << 32 | 1));
}

TEST(Sampler, ExtremesDoNotBreakIt) {
  EXPECT_EQ(histogram({0, 1}, {.temperature = 1e-40f}, 5)[1], 5);
  EXPECT_EQ(histogram({-INFINITY, 0}, {.temperature = 5}, 5)[1], 5);
  EXPECT_EQ(histogram({-1e30f, 1e30f}, {.temperature = 1}, 5)[1], 5);
  Sampler sampler({});
  std::vector<float> bad = {0, NAN};
  EXPECT_NE(sampler.sample(bad, 0).message().find("token 1 is nan"),
            std::string::npos);
  bad = {-INFINITY, -INFINITY};
  EXPECT_FALSE(sampler.sample(bad, 0).ok());
  bad = {0, INFINITY};
  EXPECT_FALSE(sampler.sample(bad, 0).ok());
  for (SamplingOptions options :
       {SamplingOptions{.temperature = -1}, SamplingOptions{.temperature = NAN},
        SamplingOptions{.topK = -1}, SamplingOptions{.topP = 0},
        SamplingOptions{.topP = 1.5f}, SamplingOptions{.topP = NAN},
        SamplingOptions{.minP = -0.1f}, SamplingOptions{.minP = NAN},
        SamplingOptions{.repetitionPenalty = 0},
        SamplingOptions{.presencePenalty = INFINITY},
        SamplingOptions{.frequencyPenalty = NAN}})
    EXPECT_FALSE(checkSampling(options).ok());
}

TEST(Generate, FollowsTheModelGreedilyAndSlidesItsContext) {
  auto tokenizer = bytes();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  FakeTrainModel model(kBigramVocab); // after token t comes t + 1; context of 8
  GenerateOptions options;
  options.prompt = "a";
  options.maxTokens = 20;
  options.sampling.temperature = 0;
  std::string text;
  int pieces = 0;
  auto result = generateText(scoringModel(model), *tokenizer, options,
                             [&](std::string_view piece) {
                               text += piece;
                               ++pieces;
                             });
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_EQ(text, "bcdefghijklmnopqrstu");
  EXPECT_EQ(pieces, 20) << "text streams as it comes";
  EXPECT_EQ(model.logitsCalls, 20);
  EXPECT_EQ(result->promptTokens, 1u);
  EXPECT_FALSE(result->ended);
}

TEST(Generate, StopsAtTheEndOfText) {
  auto tokenizer = bytes();
  ASSERT_TRUE(tokenizer.ok());
  FakeTrainModel model(kBigramVocab);
  // The last id is followed by 0, which is <|endoftext|>.
  std::string last(tokenizer->token(kBigramVocab - 1).bytes);
  GenerateOptions options;
  options.prompt = "x" + last;
  options.sampling.temperature = 0;
  std::string text;
  auto result = generateText(scoringModel(model), *tokenizer, options,
                             [&](std::string_view piece) { text += piece; });
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->ended);
  EXPECT_EQ(result->tokens, std::vector<int32_t>{0});
  EXPECT_EQ(text, "") << "special tokens are not text";
  options.ignoreEnd = true;
  result = generateText(scoringModel(model), *tokenizer, options,
                        [](std::string_view) {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->tokens.size(), options.maxTokens);
}

// tokenizer.json need not call special what a model says ends its texts.
TEST(Generate, DoesNotShowWhatEndsTheText) {
  auto tokenizer = bytes();
  ASSERT_TRUE(tokenizer.ok());
  FakeTrainModel model(kBigramVocab);
  tokenizer::Encoder encoder(*tokenizer);
  GenerateOptions options;
  options.prompt = "a";
  options.endTokens = {int32_t(encoder.encode("d").front())};
  options.sampling.temperature = 0;
  std::string text;
  auto add = [&](std::string_view piece) { text += piece; };
  auto result = generateText(scoringModel(model), *tokenizer, options, add);
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_TRUE(result->ended);
  EXPECT_EQ(result->tokens.size(), 3u) << "it counts among the tokens";
  EXPECT_EQ(text, "bc");
  text.clear();
  options.ignoreEnd = true;
  options.maxTokens = 4;
  result = generateText(scoringModel(model), *tokenizer, options, add);
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_EQ(text, "bcde") << "which ended nothing";
}

// Of a text that is whole before its first token.
class WholeGuide final : public TokenGuide {
public:
  StatusOr<const TokenMask *> allowed() override {
    return Status::error("nothing may come");
  }
  Status accept(int32_t) override { return Status::success(); }
  bool mayEnd() const override { return true; }
  bool isComplete() const override { return true; }
};

TEST(Generate, AFormThatIsWholeEndsTheText) {
  auto tokenizer = bytes();
  FakeTrainModel model(kBigramVocab);
  GenerateOptions options;
  options.prompt = "a";
  options.guide = std::make_shared<WholeGuide>();
  auto result = generateText(scoringModel(model), *tokenizer, options,
                             [](std::string_view) {});
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_TRUE(result->ended);
  EXPECT_TRUE(result->tokens.empty());
}

TEST(Generate, AnEmptyPromptStartsADocument) {
  auto tokenizer = bytes();
  FakeTrainModel model(kBigramVocab);
  GenerateOptions options;
  options.maxTokens = 1;
  options.sampling.temperature = 0;
  auto result = generateText(scoringModel(model), *tokenizer, options,
                             [](std::string_view) {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->tokens, std::vector<int32_t>{1});
}

// Of a tokenizer without an end-of-text token.
TEST(Generate, AnEmptyPromptBeginsWithWhatBeginsATextHere) {
  std::string file = byteTokenizer();
  const std::string_view end = "<|endoftext|>";
  for (size_t at; (at = file.find(end)) != file.npos;)
    file.replace(at, end.size(), "<nothing>");
  nlohmann::json fields = nlohmann::json::parse(file);
  FakeTrainModel model(kBigramVocab); // after token t comes t + 1
  GenerateOptions options;
  options.maxTokens = 1;
  options.sampling.temperature = 0;
  auto generate = [&] {
    auto tokenizer = tokenizer::Tokenizer::parse(fields.dump(), "test");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.message();
    return generateText(scoringModel(model), *tokenizer, options,
                        [](std::string_view) {});
  };
  options.framed = true;
  EXPECT_NE(generate().message().find("a beginning-of-sequence token"),
            std::string::npos);
  options.startToken = 7;
  auto result = generate();
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_EQ(result->tokens, std::vector<int32_t>{8});
  const nlohmann::json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                       begin = {
                           {"SpecialToken", {{"id", "b"}, {"type_id", 0}}}};
  fields["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {begin, text}},
      {"pair", {begin, text}},
      {"special_tokens",
       {{"b", {{"id", "b"}, {"ids", {20}}, {"tokens", {"b"}}}}}}};
  result = generate();
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_EQ(result->tokens, std::vector<int32_t>{21});
  EXPECT_EQ(result->promptTokens, 1u);
}

TEST(Generate, CountsWhatDoesNotFitTheContext) {
  auto tokenizer = bytes();
  FakeTrainModel model(kBigramVocab);
  const auto context = uint64_t(model.contextLength());
  GenerateOptions options;
  options.maxTokens = 1;
  for (uint64_t more : {0, 1, 5}) {
    options.prompt = std::string(context + more, 'a');
    auto result = generateText(scoringModel(model), *tokenizer, options,
                               [](std::string_view) {});
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->droppedTokens, more);
    EXPECT_EQ(result->context, context);
  }
}

TEST(Generate, RefusesWhatDoesNotFit) {
  auto tokenizer = bytes();
  GenerateOptions options;
  options.prompt = "\xff";
  FakeTrainModel small(20);
  EXPECT_NE(generateText(scoringModel(small), *tokenizer, options,
                         [](std::string_view) {})
                .message()
                .find("belongs to another model"),
            std::string::npos);
  options.sampling.temperature = -1;
  EXPECT_FALSE(generateText(scoringModel(small), *tokenizer, options,
                            [](std::string_view) {})
                   .ok());
  ScratchDirectory empty;
  EXPECT_FALSE(
      generateFromRun(
          empty.path, {}, [](std::string_view) {}, [](std::string_view) {})
          .ok());
  EXPECT_NE(generateFromRun(
                empty / "absent", {}, [](std::string_view) {},
                [](std::string_view) {})
                .message()
                .find("is not a run directory"),
            std::string::npos);
}

TEST(Generate, NamesTheCheckpointsThatThereAre) {
  ScratchDirectory scratch;
  std::filesystem::create_directory(scratch / "run");
  std::ofstream(scratch / "run/program.tsr");
  const auto errorOf = [&](const char *name) {
    return resolveRun(scratch / "run" + "/" + name).message();
  };
  const std::string run = "'" + (scratch / "run") + "' has no checkpoint";
  EXPECT_EQ(errorOf("step-000999"), run + " yet");
  for (int step = 1; step <= 9; ++step) {
    std::filesystem::create_directory(scratch / "run" + "/" +
                                      checkpointName(uint64_t(step)));
    if (step == 2) {
      EXPECT_EQ(errorOf("step-000999/"),
                run + " 'step-000999'; it has step-000002, step-000001");
    }
  }
  EXPECT_TRUE(errorOf("last").starts_with(
      run + " 'last'; it has step-000009, step-000008, "));
  EXPECT_TRUE(errorOf("last").ends_with(", step-000002 and 1 older"));
}
