// Prompts and completions by the files of a model.
#include "runtime/rl/RolloutTokenizer.h"
#include "test/support/LettersTokenizer.h"

#include <gtest/gtest.h>

namespace tessera::rl {
namespace {

using Tokens = std::vector<int32_t>;

constexpr const char *kVocab = R"("a": 0, "b": 1, "c": 2, ":": 3)";
constexpr const char *kEnd =
    R"({"id": 4, "content": "<|endoftext|>", "special": true,
        "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false})";

class RolloutTokenizerTest : public ::testing::Test {
protected:
  void read() {
    const Status status = tokenizer.read(ModelFiles("model", contents));
    ASSERT_TRUE(status.ok()) << status.message();
    encoder = tokenizer.promptEncoder();
  }
  StatusOr<Tokens> encodeMessages(const std::string &json) {
    auto parsed = JsonValue::parse(json, "prompt");
    EXPECT_TRUE(parsed.ok()) << parsed.message();
    return encoder.messages(*parsed);
  }

  ModelFiles::Contents contents = {
      {"config.json", "{}"},
      {"tokenizer.json", testing::lettersTokenizerJson(kVocab, kEnd)}};
  RolloutTokenizer tokenizer;
  PromptEncoder encoder;
};

TEST_F(RolloutTokenizerTest, EncodesTextAndDecodesWithoutSpecialTokens) {
  read();
  EXPECT_EQ(*encoder.text("abc"), (Tokens{0, 1, 2}));
  EXPECT_EQ(tokenizer.decode(Tokens{2, 1, 4}), "cb");
}

// The first of generation_config.json, config.json and the end of a document.
TEST_F(RolloutTokenizerTest, FindsTheTokensThatEndACompletion) {
  read();
  EXPECT_EQ(tokenizer.stopTokens(), Tokens{4});
  contents["config.json"] = R"({"eos_token_id": 2})";
  read();
  EXPECT_EQ(tokenizer.stopTokens(), Tokens{2});
  contents["generation_config.json"] = R"({"eos_token_id": [1, 2]})";
  read();
  EXPECT_EQ(tokenizer.stopTokens(), (Tokens{1, 2}));
}

TEST_F(RolloutTokenizerTest, HasNoConversationsWithoutATemplate) {
  read();
  EXPECT_TRUE(encoder.text);
  EXPECT_FALSE(encoder.messages);
}

TEST_F(RolloutTokenizerTest, EncodesConversationsByTheTemplate) {
  contents["tokenizer_config.json"] =
      R"({"chat_template": "{% for m in messages %}{{ m.content }}:{% endfor %}"})";
  read();
  EXPECT_EQ(*encodeMessages(R"([{"role": "user", "content": "ab"},
                                {"role": "assistant", "content": "c"}])"),
            (Tokens{0, 1, 3, 2, 3}));
  EXPECT_EQ(encodeMessages("[]").message(),
            "'messages' must be a list of at least one message");
  EXPECT_EQ(encodeMessages(R"([{"role": "user", "content": 1}])").message(),
            "'messages' must be a list of objects with 'role' and 'content', "
            "which are strings");
}

} // namespace
} // namespace tessera::rl
