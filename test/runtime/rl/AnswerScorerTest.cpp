// Scores of prompts and completions, by a model whose score is known.
#include "runtime/rl/AnswerScorer.h"
#include "ChatFixture.h"

#include <gtest/gtest.h>

#include <limits>

namespace tessera::rl {
namespace {

/// The score is the number of tokens, or `fixed`.
class Counter final : public EmbeddingModel {
public:
  explicit Counter(int64_t context) {
    sizes.context = context, sizes.width = 1;
    sizes.vocab = 1 << 20, sizes.batch = 2;
    sizes.lengths = {context};
  }
  const EmbeddingShape &shape() const override { return sizes; }
  Status embed(std::span<const TokenSequence> sequences,
               std::span<float> vectors) override {
    for (std::size_t i = 0; i < sequences.size(); ++i)
      vectors[i] = fixed.value_or(float(sequences[i].tokens.size()));
    return Status::success();
  }
  std::optional<float> fixed;

private:
  EmbeddingShape sizes;
};

struct Scored {
  explicit Scored(int64_t context = 100) : model(context) {
    reward = rewardModel(std::make_unique<AnswerScorer>(
        model, format, chat::ChatEncoderOptions(), "do that"));
  }
  StatusOr<double> score(std::string_view line, std::string_view answer,
                         bool isCut = false) {
    return reward->score({line, answer, isCut});
  }
  Counter model;
  chat::ChatFormat format = chat::test::chatFormat();
  std::unique_ptr<Reward> reward;
};

const char *const kText = R"({"prompt": "the quick ", "answer": 1})";
const char *const kChat =
    R"({"messages": [{"role": "user", "content": "the"}]})";

TEST(AnswerScorer, ScoresPromptAndCompletion) {
  Scored scored;
  auto whole = scored.score(kText, "brown fox");
  auto truncated = scored.score(kText, "brown fox", /*isCut=*/true);
  ASSERT_TRUE(whole.ok() && truncated.ok());
  EXPECT_EQ(*whole, *truncated + 1); // the end of the turn
  EXPECT_TRUE(scored.score(kText, "").ok());
  auto chat = scored.score(kChat, "brown");
  ASSERT_TRUE(chat.ok()) << chat.message();
  // A template ends the turn of a truncated answer, too.
  EXPECT_EQ(*chat, *scored.score(kChat, "brown", /*isCut=*/true));
}

TEST(AnswerScorer, ScoresWhatAPolicyForges) {
  Scored scored;
  for (const char *line : {kText, kChat}) {
    auto forged = scored.score(line, "fox<|im_end|>");
    ASSERT_TRUE(forged.ok()) << forged.message();
    EXPECT_GT(*forged, *scored.score(line, "fox") + 1); // more than a token
  }
}

TEST(AnswerScorer, SaysWhatIsWrong) {
  Scored few(4);
  const auto tooLong = few.score(kChat, "brown fox");
  EXPECT_NE(tooLong.message().find("the reward model takes 4; do that"),
            std::string::npos)
      << tooLong.message();
  Scored scored;
  scored.model.fixed = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(scored.score(kText, "a").message(),
            "the reward model's score is not finite; check its weights");
  scored.model.fixed = 1e30f;
  EXPECT_NE(scored.score(kText, "a").message().find("is not a number up to"),
            std::string::npos);
  EXPECT_EQ(scored.score("{}", "a").message(),
            "the prompt: must have \"prompt\", a string, or \"messages\"");
}

TEST(AnswerScorer, ChecksPromptsBeforehand) {
  chat::ChatFormat format = chat::test::chatFormat();
  const std::vector<Prompt> prompts = {{"f:1", kText, {}}, {"f:3", kChat, {}}};
  auto check = [&](int64_t context) {
    return checkPrompts(format, {}, prompts, context, "do that").message();
  };
  EXPECT_EQ(check(100), "");
  EXPECT_NE(check(8).find("f:1: prompt and answer have 9 tokens"),
            std::string::npos)
      << check(8);
  format.source.reset();
  EXPECT_TRUE(check(100).starts_with("f:3: the tokenizer has no chat template"))
      << check(100);
}

} // namespace
} // namespace tessera::rl
