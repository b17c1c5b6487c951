// Prompts and the order in which they are used.
#include "runtime/rl/PromptFile.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

namespace tessera::rl {
namespace {

/// Bytes as tokens; of a conversation its number of messages.
PromptEncoder bytes() {
  PromptEncoder encoder;
  encoder.text = [](std::string_view text) {
    return std::vector<int32_t>(text.begin(), text.end());
  };
  return encoder;
}

class PromptFile : public ::testing::Test {
protected:
  StatusOr<std::vector<Prompt>> read(const std::string &text,
                                     PromptEncoder encoder = bytes()) {
    path = ::testing::TempDir() + "/prompts.jsonl";
    std::ofstream(path) << text;
    return readPrompts(path, encoder, 8);
  }
  std::string errorOf(const std::string &text) {
    auto prompts = read(text);
    std::string message = prompts.ok() ? "no error" : prompts.message();
    if (const auto at = message.find(path); at != message.npos)
      message.replace(at, path.size(), "p");
    return message;
  }
  std::string path;
};

TEST_F(PromptFile, KeepsTheLineForTheReward) {
  auto prompts = read("{\"prompt\": \"ab\", \"answer\": 3}\n\n"
                      "{\"prompt\": \"c\"}\n");
  ASSERT_TRUE(prompts.ok()) << prompts.message();
  ASSERT_EQ(prompts->size(), 2u);
  EXPECT_EQ((*prompts)[0].tokens, (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ((*prompts)[0].line, "{\"prompt\": \"ab\", \"answer\": 3}");
  EXPECT_EQ((*prompts)[1].where, path + ":3");
}

TEST_F(PromptFile, AConversationIsEncodedByTheTemplate) {
  PromptEncoder encoder = bytes();
  encoder.messages = [](const JsonValue &messages) {
    return std::vector<int32_t>{int32_t(messages.elements().size())};
  };
  auto prompts = read("{\"messages\": [{}, {}]}", encoder);
  ASSERT_TRUE(prompts.ok()) << prompts.message();
  EXPECT_EQ((*prompts)[0].tokens, (std::vector<int32_t>{2}));
}

TEST_F(PromptFile, ErrorsNameTheLine) {
  EXPECT_EQ(errorOf("\n"), "'p' has no prompts");
  EXPECT_EQ(errorOf("{\"prompt\": \"a\"}\n[1]"), "p:2: must be a JSON object");
  EXPECT_EQ(errorOf("{\"text\": \"a\"}"),
            "p:1: a prompt has either 'prompt', a text, or 'messages', a "
            "conversation");
  EXPECT_EQ(errorOf("{\"prompt\": 3}"), "p:1: 'prompt' must be a string");
  EXPECT_EQ(errorOf("{\"prompt\": \"\"}"), "p:1: the prompt has no token");
  EXPECT_EQ(errorOf("{\"prompt\": \"123456789\"}"),
            "p:1: the prompt has 9 tokens, and there is room for 8 before "
            "rollout.max_tokens; shorten it, or raise batch.sequence");
  EXPECT_EQ(errorOf("{\"messages\": []}"),
            "p:1: the model has no chat template for 'messages'; give "
            "'prompt', a text");
}

TEST(PromptOrder, EachPromptOnceAnEpoch) {
  std::set<std::vector<uint64_t>> orders;
  for (uint64_t epoch = 0; epoch < 4; ++epoch) {
    std::vector<uint64_t> order;
    for (uint64_t i = 0; i < 11; ++i)
      order.push_back(promptOfGroup(5, epoch * 11 + i, 11));
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), 11u);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 4u);
}

} // namespace
} // namespace tessera::rl
