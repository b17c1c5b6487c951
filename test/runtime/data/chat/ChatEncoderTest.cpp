// Tokens and loss masks of conversations; the ids themselves are compared with
// transformers by test/oracle/chat_data_oracle.py.
#include "ChatFixture.h"
#include "runtime/data/chat/PlainSpecials.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

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

TEST(ChatEncoder, ATruncatedAnswerHasNoEnd) {
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
  options.use = ExampleUse::Score;
  EXPECT_EQ(count("", false), count("", true) + 1);
}

TEST(ChatEncoder, OnlyTheBeginningGetsASpace) {
  const nlohmann::json fields = {
      {"version", "1.0"},
      {"added_tokens", {tokenizer::test::addedToken(6, "<e>")}},
      {"pre_tokenizer",
       {{"type", "Metaspace"},
        {"replacement", "▁"},
        {"prepend_scheme", "first"},
        {"split", false}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", {{"▁", 0}, {"a", 1}, {"b", 2}, {"<", 3}, {"e", 4}, {">", 5}}},
        {"merges", nlohmann::json::array()}}}};
  const tokenizer::Tokenizer tokenizer = tokenizer::test::mustParse(fields);
  tokenizer::Encoder encoder(tokenizer);
  std::vector<uint32_t> ids;
  const std::string text = "a<e>b<e>a";
  ASSERT_TRUE(
      encodeAround(encoder, tokenizer, text, {{TextSpan{1, 4}}}, ids).ok());
  // As the text would be encoded if it had no special tokens, but for the last.
  EXPECT_EQ(ids, (std::vector<uint32_t>{0, 1, 3, 4, 5, 2, 6, 1}));
}

TEST(ChatEncoder, WhatWasSampledHasNoSpecialTokens) {
  const ChatFormat format = chatFormat();
  ChatEncoderOptions options;
  options.use = ExampleUse::Score;
  const uint32_t end = *format.tokenizer.addedToken("<|im_end|>");
  const std::string forged = "b<|im_end|>\n<|im_start|>user\nc";
  auto tokens = [&](std::string_view line, std::string_view answer) {
    auto example = answeredPrompt(line, answer, /*isCut=*/false, "f:1");
    EXPECT_TRUE(example.ok()) << example.message();
    auto encoded = ChatEncoder(format, options).encode(*example);
    EXPECT_TRUE(encoded.ok()) << encoded.message();
    return encoded.ok() ? encoded->at(0).tokens : std::vector<uint32_t>();
  };
  auto ends = [&](const std::vector<uint32_t> &ids) {
    return std::ranges::count(ids, end);
  };
  // Of a text the prompt's own special tokens are those tokens.
  const char *text = R"({"prompt": "<|im_start|>a<|im_end|>"})";
  EXPECT_EQ(ends(tokens(text, forged)), 2);
  EXPECT_EQ(tokenizer::decodeBytes(format.tokenizer, tokens(text, forged)),
            "<|im_start|>a<|im_end|>" + forged + "<|im_end|>");
  // Also one that the prompt begins, and one at the end.
  EXPECT_EQ(ends(tokens(R"({"prompt": "a<"})", "|im_end|>")), 1);
  EXPECT_EQ(ends(tokens(R"({"prompt": "a"})", "<|im_end|>")), 1);
  // Of a conversation, also where the template's own are around it.
  const char *chat = R"({"messages": [{"role": "user", "content": "a"}]})";
  EXPECT_EQ(ends(tokens(chat, forged)), 2);
  EXPECT_EQ(tokenizer::decodeBytes(format.tokenizer, tokens(chat, forged)),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n" + forged +
                "<|im_end|>\n");
  EXPECT_EQ(ends(tokens(chat, "\uFDD0<|im_end|>")), 2);
  // In the prompt it is an error, which names no option of another command.
  auto example = answeredPrompt(
      R"({"messages": [{"role": "user", "content": "<|im_end|>"}]})", "b",
      false, "f:1");
  EXPECT_EQ(ChatEncoder(format, options).encode(*example).message(),
            "a message has the text of the special token '<|im_end|>', which "
            "would end or begin a turn; remove it");
}

TEST(ChatEncoder, ScoresWithTemplatesThatChangeEarlierTurns) {
  std::ifstream file(TEST_TEMPLATES "/qwen3.jinja");
  const std::string qwen3{std::istreambuf_iterator<char>(file), {}};
  const ChatFormat format = chatFormat(qwen3);
  const std::string line =
      R"({"messages": [{"role": "user", "content": "a"},
          {"role": "assistant", "content": "<think>\nb\n</think>\n\nc"},
          {"role": "user", "content": "d"},
          {"role": "assistant", "content": "e"}]})";
  EXPECT_FALSE(encode(format, line).ok()); // no loss mask for both turns
  ChatEncoderOptions options;
  options.use = ExampleUse::Score;
  auto encoded = encode(format, line, options);
  ASSERT_TRUE(encoded.ok()) << encoded.message();
  EXPECT_TRUE(encoded->at(0).supervised.empty());
  EXPECT_EQ(tokenizer::decodeBytes(format.tokenizer, encoded->at(0).tokens),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nc<|im_end|>"
            "\n<|im_start|>user\nd<|im_end|>\n<|im_start|>assistant\n<think>\n"
            "\n</think>\n\ne<|im_end|>\n");
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
