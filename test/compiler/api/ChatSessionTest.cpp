// A conversation over a compiled decoder: a turn computes only what the cache
// lacks, and errors leave the conversation as it was.
#include "runtime/serve/ChatSession.h"
#include "test/runtime/infer/TinyDecoder.h"
#include "test/support/LettersTokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

/// "QUESTION|ANSWER|…|": short, as the context is.
class PlainChat : public serve::ChatRenderer {
public:
  StatusOr<std::vector<serve::PromptPart>>
  render(std::span<const serve::ChatMessage> messages,
         std::span<const serve::Tool>,
         const serve::TemplateSettings &) const override {
    std::vector<serve::PromptPart> parts;
    for (const serve::ChatMessage &each : messages)
      parts.push_back({each.content + "|", each.role == "user"});
    return parts;
  }
  std::vector<std::string> stops() const override { return {}; }
};

/// A token for each letter, and one for "|": 53 of the model's 67.
StatusOr<tokenizer::Tokenizer> letters() {
  std::string vocab = R"("|": 0)";
  for (int i = 0; i < 52; ++i)
    vocab += fmt::format(R"(, "{}": {})", char(i < 26 ? 'a' + i : 'A' + i - 26),
                         i + 1);
  return testing::lettersTokenizer(vocab);
}

class ChatSessionTest : public ::testing::Test {
protected:
  void SetUp() override {
    testing::openTiny("fp32", session, decoder);
    auto made = letters();
    ASSERT_TRUE(made.ok()) << made.message();
    tokens = made.take();
  }

  /// Greedy; shown pieces are those of the answer.
  static StatusOr<Answer> say(ChatSession &chat, const std::string &message,
                              uint64_t most) {
    AnswerLimits limits;
    limits.maxTokens = most;
    limits.sampling.temperature = 0;
    std::string shown;
    auto answer = chat.say(
        message, limits, [&](std::string_view piece) { shown += piece; },
        [] { return false; });
    if (answer.ok()) {
      EXPECT_EQ(shown, answer->text);
    }
    return answer;
  }

  std::unique_ptr<hal::Session> session;
  std::unique_ptr<Decoder> decoder;
  std::optional<tokenizer::Tokenizer> tokens;
  PlainChat plain;
};

TEST_F(ChatSessionTest, ComputesOnlyNewTokens) {
  ChatSession chat(*decoder, *tokens, plain);
  auto first = say(chat, "abcd", 3);
  ASSERT_TRUE(first.ok()) << first.message();
  EXPECT_EQ(first->kept, 0);
  EXPECT_EQ(first->read, 5);
  EXPECT_EQ(first->generated, 3);
  auto second = say(chat, "xy", 3);
  ASSERT_TRUE(second.ok()) << second.message();
  // The prompt and the answer but for its last token, which was not read.
  EXPECT_EQ(second->kept, 5 + 3 - 1);
  EXPECT_EQ(second->kept + second->read, 5 + 3 + 1 + 3);
}

TEST_F(ChatSessionTest, AnswersAsAConversationThatComputesAll) {
  ChatSession cached(*decoder, *tokens, plain);
  std::string answers[2];
  for (std::string &each : answers) {
    auto answer = say(cached, "abc", 4);
    ASSERT_TRUE(answer.ok()) << answer.message();
    each = answer->text;
  }
  // Another one reads the same messages at once.
  ChatSession fresh(*decoder, *tokens, plain);
  auto again = say(fresh, "abc|" + answers[0] + "|abc", 4);
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_EQ(again->kept, 0);
  EXPECT_EQ(again->text, answers[1]);
}

// Where the tokens of a prompt see each other, what earlier turns have depends
// on later ones.
TEST_F(ChatSessionTest, ComputesAllOfAWholePrompt) {
  testing::openTiny("fp32_prompts", session, decoder);
  ChatSession turns(*decoder, *tokens, plain);
  auto first = say(turns, "abc", 4);
  ASSERT_TRUE(first.ok()) << first.message();
  auto second = say(turns, "abc", 4);
  ASSERT_TRUE(second.ok()) << second.message();
  EXPECT_EQ(second->kept, 0);
  ChatSession fresh(*decoder, *tokens, plain);
  auto again = say(fresh, "abc|" + first->text + "|abc", 4);
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_EQ(again->text, second->text);
}

TEST_F(ChatSessionTest, StartsAnew) {
  ChatSession chat(*decoder, *tokens, plain);
  auto first = say(chat, "abc", 4);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(say(chat, "def", 2).ok());
  chat.reset("");
  auto again = say(chat, "abc", 4);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->text, first->text);
  EXPECT_EQ(again->kept, 3); // all but the last token, which gives the logits
}

TEST_F(ChatSessionTest, EndsWhereTheContextIsFull) {
  ChatSession chat(*decoder, *tokens, plain);
  auto answer = say(chat, "abc", 1000);
  ASSERT_TRUE(answer.ok()) << answer.message();
  EXPECT_TRUE(answer->full);
  EXPECT_EQ(answer->read + answer->generated, decoder->shape().context + 1);
}

TEST_F(ChatSessionTest, ForgetsAMessageThatFailed) {
  ChatSession chat(*decoder, *tokens, plain);
  auto first = say(chat, "abc", 2);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(say(chat, std::string(60, 'a'), 2).ok()); // beyond the context
  auto next = say(chat, "de", 2);
  ASSERT_TRUE(next.ok()) << next.message();
  EXPECT_EQ(next->kept + next->read, 4 + 2 + 1 + 3);
}

} // namespace
} // namespace tessera
