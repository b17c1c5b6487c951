// Messages in channels, in pieces of any size. The outputs are those of
// OpenAI's description of the format.
#include "runtime/serve/Channels.h"
#include "runtime/support/SplitMix64.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace tessera::serve {
namespace {

/// "reasoning|content|name(arguments)…".
std::string readPieces(std::string_view text, uint64_t seed,
                       std::string_view opened, bool onlyOne) {
  ChannelReader reader({"get_weather", "clock"}, onlyOne, opened);
  SplitMix64 random(seed);
  std::string reasoning, content;
  std::vector<CallPiece> calls;
  auto add = [&](const ChannelPieces &pieces) {
    reasoning += pieces.reasoning;
    content += pieces.content;
    for (const CallPiece &piece : pieces.calls) {
      EXPECT_EQ(piece.name.empty(), piece.index < calls.size());
      if (piece.index == calls.size())
        calls.push_back(piece);
      else
        calls.at(piece.index).arguments += piece.arguments;
    }
  };
  while (!text.empty()) {
    const size_t length = seed ? 1 + random() % 20 : 1;
    add(reader.push(text.substr(0, length)));
    text.remove_prefix(std::min(length, text.size()));
  }
  add(reader.finish());
  EXPECT_EQ(reader.calls(), calls.size());
  std::string all = reasoning + "|" + content + "|";
  for (const CallPiece &call : calls)
    all += call.name + "(" + call.arguments + ")";
  return all;
}

void expectPieces(std::string_view text, std::string_view wanted,
                  std::string_view opened = "", bool onlyOne = false) {
  for (uint64_t seed = 0; seed < 30; ++seed)
    EXPECT_EQ(readPieces(text, seed, opened, onlyOne), wanted) << text << seed;
}

TEST(Channels, AnalysisIsReasoningAndFinalContent) {
  expectPieces("<|channel|>analysis<|message|>User asks.<|end|>"
               "<|start|>assistant<|channel|>final<|message|>2 + 2 = 4.",
               "User asks.|2 + 2 = 4.|");
  // What ends an output is not shown, unless it does not end it.
  expectPieces("<|channel|>final<|message|>4<|return|>", "|4|");
  expectPieces("<|channel|>analysis<|message|>a < b <|en<|end|>",
               "a < b <|en||");
  expectPieces("<|channel|>analysis<|message|>a<|end|><|start|>assistant"
               "<|channel|>analysis<|message|>b",
               "a\nb||");
}

TEST(Channels, MessagesToFunctionsAreCalls) {
  const std::string thought = "<|channel|>analysis<|message|>Look.<|end|>",
                    call = "<|channel|>commentary to=functions.get_weather "
                           "<|constrain|>json<|message|>"
                           R"({"location":"Tokyo"})";
  expectPieces(thought + "<|start|>assistant" + call + "<|call|>",
               R"(Look.||get_weather({"location":"Tokyo"}))");
  // The recipient may be in the role, as templates write it.
  expectPieces(" to=functions.clock<|channel|>commentary json<|message|>{}",
               "||clock({})");
  expectPieces("<|channel|>commentary to=functions.clock<|message|>",
               "||clock({})");
  expectPieces("<|channel|>commentary<|message|>I look.<|end|>"
               "<|start|>assistant" +
                   call,
               R"(|I look.|get_weather({"location":"Tokyo"}))");
  const std::string two = call + "<|call|><|start|>assistant" + call +
                          "<|end|><|start|>assistant<|channel|>final"
                          "<|message|>x";
  const std::string one = R"(get_weather({"location":"Tokyo"}))";
  expectPieces(two, "|x|" + one + one);
  expectPieces(two, "||" + one, "", /*onlyOne=*/true);
}

TEST(Channels, OtherMessagesAreContent) {
  expectPieces("<|channel|>commentary to=functions.other<|message|>{}", "|{}|");
  expectPieces("<|channel|>analysis to=python<|message|>1+1", "1+1||");
  expectPieces("<|channel|>commentary<|message|>a<|end|><|start|>assistant"
               "<|channel|>final<|message|>b",
               "|a\nb|");
}

TEST(Channels, TextWithoutAHeaderIsContent) {
  for (std::string_view text :
       {"hello", "<| x", "to you", "<|chan", " ta", "to=a <b", "x<|message|>y"})
    expectPieces(text, "|" + std::string(text) + "|");
  expectPieces("", "||");
  expectPieces("<|channel|>analysis", "||");
  expectPieces("<|channel|>" + std::string(1000, 'x'),
               "|<|channel|>" + std::string(1000, 'x') + "|");
  expectPieces("a<|end|>\n", "|a|");
  // A message without its end.
  expectPieces("<|channel|>analysis<|message|>a<|start|>assistant<|channel|>"
               "final<|message|>b",
               "a|b|");
}

TEST(Channels, APromptMayHaveBegunTheMessage) {
  EXPECT_EQ(openHeader("<|start|>user<|message|>a<|end|><|start|>assistant"),
            "");
  EXPECT_EQ(openHeader("<|start|>assistant<|channel|>final<|message|>"),
            kFinalHeader);
  for (const char *none :
       {"", "<|start|>user<|message|>", "assistant",
        "<|start|>assistant<|channel|>final<|message|>a<|end|>"})
    EXPECT_EQ(openHeader(none), "") << none;
  expectPieces("a<|end|>", "a||", "<|channel|>analysis<|message|>");
  expectPieces("{\"x\":1}", "||clock({\"x\":1})", callHeader("clock"));
  expectPieces("", "||clock({})", callHeader("clock"));
}

// Headers that never end are searched no longer than they may be.
TEST(Channels, LongOutputsAreReadInTime) {
  for (const char *part : {"<|channel|>", "<|start|>", "<|", "to=", "\n"}) {
    std::string text;
    while (text.size() < 300'000)
      text += part;
    ChannelReader reader({}, false);
    for (char byte : text)
      reader.push({&byte, 1});
    reader.finish();
  }
}

TEST(Channels, TemplatesAreFound) {
  EXPECT_TRUE(hasChannels("{{ '<|start|>assistant<|channel|>final' }}"));
  for (const char *none : {"", "<|start|>", "<|im_start|><|channel|>"})
    EXPECT_FALSE(hasChannels(none)) << none;
}

} // namespace
} // namespace tessera::serve
