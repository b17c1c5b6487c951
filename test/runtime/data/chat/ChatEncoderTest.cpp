// Tokens and loss masks of conversations; the ids themselves are compared with
// transformers by test/oracle/chat_data_oracle.py.
#include "ChatFixture.h"

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::chat;
using namespace tessera::chat::test;

namespace {
StatusOr<EncodedExample> encode(const ChatFormat &format, std::string_view line,
                                const ChatEncoderOptions &options = {}) {
  auto example = parseExample(line, "f:1");
  if (!example.ok())
    return example.status();
  return ChatEncoder(format, options).encode(*example);
}

std::string supervised(const ChatFormat &format, std::string_view line,
                       const ChatEncoderOptions &options = {}) {
  auto encoded = encode(format, line, options);
  if (!encoded.ok())
    return "error: " + encoded.message();
  std::string all;
  for (const EncodedDocument &each : *encoded)
    all += (all.empty() ? "" : " | ") + supervisedText(format.tokenizer, each);
  return all;
}

const std::string twoTurns =
    R"({"messages": [{"role": "system", "content": "the"},
        {"role": "user", "content": "quick"},
        {"role": "assistant", "content": "brown fox"},
        {"role": "user", "content": "lazy"},
        {"role": "assistant", "content": "dog's 😀"}]})";
} // namespace

TEST(ChatEncoder, SupervisesTurnsWithTheirEnds) {
  const ChatFormat plain = chatFormat(), marked = chatFormat(markedChatml);
  EXPECT_EQ(supervised(plain, twoTurns),
            "[brown fox<|im_end|>\n][dog's 😀<|im_end|>\n]");
  EXPECT_EQ(supervised(marked, twoTurns),
            "[brown fox<|im_end|>][dog's 😀<|im_end|>]");
  ChatEncoderOptions last;
  last.turns = SupervisedTurns::Last;
  EXPECT_EQ(supervised(plain, twoTurns, last), "[dog's 😀<|im_end|>\n]");
  EXPECT_EQ(supervised(marked, twoTurns, last), "[dog's 😀<|im_end|>]");

  auto encoded = encode(plain, twoTurns);
  ASSERT_TRUE(encoded.ok());
  const EncodedDocument &document = encoded->at(0);
  EXPECT_EQ(document.turns, 2u);
  EXPECT_EQ(document.ends, 2u);
  EXPECT_EQ(tokenizer::decodeBytes(plain.tokenizer, document.tokens),
            "<|im_start|>system\nthe<|im_end|>\n<|im_start|>user\nquick"
            "<|im_end|>\n<|im_start|>assistant\nbrown fox<|im_end|>\n"
            "<|im_start|>user\nlazy<|im_end|>\n<|im_start|>assistant\n"
            "dog's 😀<|im_end|>\n");
}

TEST(ChatEncoder, SupervisesAnswersOnly) {
  const ChatFormat format = chatFormat();
  EXPECT_EQ(supervised(format, R"({"prompt": "the quick ", "completion":
                                   "brown fox"})"),
            "[brown fox<|im_end|>]");
  EXPECT_EQ(supervised(format, R"({"prompt": "the", "completion":
                                   " quick<|im_end|>"})"),
            "[ quick<|im_end|>]");
  // An earlier turn of the assistant belongs to the prompt.
  EXPECT_EQ(supervised(format,
                       R"({"prompt": [{"role": "user", "content": "a"},
                           {"role": "assistant", "content": "b"},
                           {"role": "user", "content": "c"}],
                           "chosen": [{"role": "assistant", "content": "d"}],
                           "rejected": [{"role": "assistant", "content": "e"}]
                          })"),
            "[d<|im_end|>\n] | [e<|im_end|>\n]");
  // And what a tool says is not the assistant's.
  EXPECT_EQ(supervised(format,
                       R"({"prompt": [{"role": "user", "content": "a"}],
                           "completion": [{"role": "assistant", "content": "b"},
                           {"role": "tool", "content": "c"},
                           {"role": "assistant", "content": "d"}]})"),
            "[b<|im_end|>\n][d<|im_end|>\n]");
}

TEST(ChatEncoder, ACutAnswerHasNoEnd) {
  const ChatFormat format = chatFormat();
  ChatEncoderOptions options;
  auto count = [&](std::string_view answer, bool isCut) -> std::size_t {
    auto example =
        answeredPrompt(R"({"prompt": "the quick "})", answer, isCut, "f:1");
    auto encoded = ChatEncoder(format, options).encode(*example);
    return encoded.ok() ? encoded->at(0).tokens.size() : 0;
  };
  EXPECT_EQ(count("brown fox", false), count("brown fox", true) + 1);
  EXPECT_GT(count("", false), 0u);
  EXPECT_EQ(count("", true), 0u); // has nothing to learn
  options.mustLearn = false;
  EXPECT_EQ(count("", false), count("", true) + 1);
}

TEST(ChatEncoder, SaysWhatIsWrong) {
  const ChatFormat format = chatFormat();
  EXPECT_EQ(supervised(format, R"({"messages": [{"role": "user",
                                   "content": "a"}]})"),
            "error: has no message of the assistant, so that there is nothing "
            "to learn");
  EXPECT_EQ(supervised(format, R"({"messages": [{"role": "robot", "content":
                       "a"}, {"role": "assistant", "content": "b"}]})"),
            "error: template: the template refuses: unknown role robot");
  EXPECT_EQ(supervised(format, R"({"messages": [{"role": "user", "content":
                       "<|im_end|>"}, {"role": "assistant", "content": "b"}]})"),
            "error: a message has the text of the special token '<|im_end|>', "
            "which would end or begin a turn; remove it, or take it for the "
            "token with --parse-special");
  ChatEncoderOptions parses;
  parses.parsesSpecial = true;
  EXPECT_EQ(supervised(format, R"({"messages": [{"role": "user", "content":
                       "<|im_end|>"}, {"role": "assistant", "content": "b"}]})",
                       parses),
            "[b<|im_end|>\n]");
  const ChatFormat silent = chatFormat(
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}"
      "{% endif %}{% endfor %}");
  EXPECT_EQ(supervised(silent, twoTurns),
            "error: has no token to learn: the assistant's turns are empty");
  const ChatFormat looksAhead =
      chatFormat("{{ messages | length }}{% for m in messages %}{{ m.content }}"
                 "{% endfor %}");
  EXPECT_EQ(supervised(looksAhead, twoTurns),
            "error: rendering 2 messages and an open answer does not begin the "
            "whole text (the template changes earlier messages), so that it is "
            "not known what the assistant wrote; use a template with "
            "{% generation %} blocks (--template), or train on the last turn "
            "only (--supervise last)");
  EXPECT_EQ(supervised(chatFormat("{% macro f() %}{% generation %}a"
                                  "{% endgeneration %}{% endmacro %}{{ f() }}"),
                       twoTurns),
            "error: template: line 1: a generation block in a macro or a set "
            "block is not supported");
  ChatFormat none = chatFormat();
  none.source.reset();
  EXPECT_EQ(supervised(none, twoTurns),
            "error: the tokenizer has no chat template; add a "
            "chat_template.jinja to its directory (tessera data chat also "
            "takes one by --template)");
}
