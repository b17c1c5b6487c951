// Examples of a request in the rows of batches.
#include "runtime/tune/Examples.h"
#include "runtime/data/TokenDataset.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tessera::tune {
namespace {

constexpr DocumentInputs kSampled = {
    .starts = true, .numbers = true, .reference = true, .samples = true};
constexpr int32_t kNone = ignoredTarget;

StatusOr<std::vector<Example>> read(std::string_view text,
                                    const ExampleShape &shape) {
  auto json = JsonValue::parse(text, "test");
  return json.ok() ? readExamples(*json, shape)
                   : StatusOr<std::vector<Example>>(json.status());
}

std::vector<TokenBuffers> packExamples(const std::vector<Example> &examples,
                                       const ExampleShape &shape) {
  std::vector<TokenBuffers> batches;
  auto packed = PackedExamples::pack(examples, shape);
  EXPECT_TRUE(packed.ok());
  for (size_t i = 0; packed.ok() && i < packed->batches(); ++i)
    batches.push_back(packed->batch(i));
  return batches;
}

TEST(Examples, ArePutIntoARow) {
  const ExampleShape shape{1, 6, 100, 4, kSampled};
  auto examples = read(R"([{"tokens": [5, 6, 7], "weights": [1, 0, 1],
                            "logprobs": [null, null, -0.5],
                            "reference_logprobs": [0, 0, -0.25],
                            "advantages": [9, 9, 2]}])",
                       shape);
  ASSERT_TRUE(examples.ok()) << examples.message();
  const auto batches = packExamples(*examples, shape);
  ASSERT_EQ(batches.size(), 1U);
  const TokenBuffers &batch = batches[0];
  // The last token is predicted, not read; the first is not predicted.
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{5, 6, 0, 0, 0, 0}));
  EXPECT_EQ(batch.targets,
            (std::vector<int32_t>{kNone, 7, kNone, kNone, kNone, kNone}));
  EXPECT_EQ(batch.behavior, (std::vector<float>{0, -0.5f, 0, 0, 0, 0}));
  EXPECT_EQ(batch.reference, (std::vector<float>{0, -0.25f, 0, 0, 0, 0}));
  EXPECT_EQ(batch.advantages, (std::vector<float>{0, 2, 0, 0, 0, 0}));
  EXPECT_EQ(batch.documentNumbers,
            (std::vector<int32_t>{0, 0, kNone, kNone, kNone, kNone}));
  EXPECT_EQ(batch.documentStarts, (std::vector<int32_t>{0, 0, 2, 2, 2, 2}));
}

TEST(Examples, FillRowsThenBatches) {
  // Of 5, 4, 3 and 2 positions: rows of 5, of 4 + 2, of 3; two to a batch.
  const ExampleShape shape{2, 6, 100, 2, {.starts = true, .numbers = true}};
  std::vector<Example> examples;
  for (int32_t count : {3, 6, 4, 5}) {
    Example example;
    example.tokens.resize(size_t(count));
    std::iota(example.tokens.begin(), example.tokens.end(), 10 * count);
    example.isLearned.assign(size_t(count), true);
    example.isLearned[0] = false;
    examples.push_back(std::move(example));
  }
  const auto batches = packExamples(examples, shape);
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0].tokens, (std::vector<int32_t>{60, 61, 62, 63, 64, 0, //
                                                     50, 51, 52, 53, 30, 31}));
  EXPECT_EQ(batches[0].documentNumbers,
            (std::vector<int32_t>{0, 0, 0, 0, 0, kNone, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(batches[0].documentStarts,
            (std::vector<int32_t>{0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 4, 4}));
  EXPECT_EQ(batches[1].tokens,
            (std::vector<int32_t>{40, 41, 42, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batches[1].targets[2], 43);
}

TEST(Examples, HaveAtMostSoManyToARow) {
  const ExampleShape shape{1, 8, 100, 1, {.starts = true}};
  auto examples = read(R"([{"tokens": [1, 2]}, {"tokens": [3, 4]}])", shape);
  ASSERT_TRUE(examples.ok());
  EXPECT_EQ(packExamples(*examples, shape).size(), 2U);
}

TEST(Examples, TakeAtMostSoManyRows) {
  const ExampleShape shape{2, 8, 100, 1, {.starts = true}};
  std::vector<Example> examples(PackedExamples::kMostRows,
                                {{1, 2}, {false, true}});
  auto packed = PackedExamples::pack(examples, shape);
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(packed->batches(), PackedExamples::kMostRows / 2);
  examples.push_back(examples.back());
  EXPECT_EQ(PackedExamples::pack(examples, shape).message(),
            "examples take more than 4096 rows of 8 tokens; send them in "
            "several requests");
}

TEST(Examples, LearnAllTokensWithoutWeights) {
  auto examples =
      read(R"([{"tokens": [1, 2, 3]}])", {1, 8, 100, 1, {.starts = true}});
  ASSERT_TRUE(examples.ok());
  EXPECT_EQ((*examples)[0].isLearned, (std::vector<bool>{false, true, true}));
}

TEST(Examples, AreRefusedByTheirFields) {
  const ExampleShape shape{1, 4, 100, 1, {.starts = true, .samples = true}};
  const std::pair<const char *, const char *> cases[] = {
      {"[]", "examples must be an array that is not empty"},
      {"[3]", "examples[0] must be an object"},
      {"[{}]", "examples[0].tokens must be an array of at least 2 tokens"},
      {R"([{"tokens": [1, 2, 3, 4, 5, 6]}])",
       "examples[0].tokens has 6 tokens; this server's batches have room for 5 "
       "(batch.sequence + 1)"},
      {R"([{"tokens": [1, 100]}])",
       "examples[0].tokens[1] must be a token from 0 to 99"},
      {R"([{"tokens": [1, 2], "weights": [1, 0]}])",
       "examples[0].weights has no 1 after the first token, so that nothing is "
       "learned"},
      {R"([{"tokens": [1, 2], "logprobs": [0, null], "advantages": [0, 0]}])",
       "examples[0].logprobs[1] must be a number that fits fp32"},
      {R"([{"tokens": [1, 2], "logprobs": [0, 0], "advantages": [0, 1e39]}])",
       "examples[0].advantages[1] must be a number that fits fp32"},
      {R"([{"tokens": [1, 2], "logprobs": [0, 0]}])",
       "examples[0].advantages must be an array of 2 numbers, one for each "
       "token"},
      {R"([{"tokens": [1, 2], "reference_logprobs": [0, 0]}])",
       "examples[0].reference_logprobs has no effect on this server's loss; "
       "leave it out"}};
  for (const auto &[text, message] : cases) {
    auto examples = read(text, shape);
    ASSERT_FALSE(examples.ok()) << text;
    EXPECT_EQ(examples.message(), message);
  }
}

} // namespace
} // namespace tessera::tune
