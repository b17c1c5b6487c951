#include "runtime/data/tokenizer/PreTokenizer.h"
#include "TestTokenizers.h"

#include <gtest/gtest.h>

using namespace tessera::tokenizer;
using Pieces = std::vector<std::string>;

static Pieces split(SplitPattern pattern, std::string_view text) {
  Pieces pieces;
  RegexScanner scanner(*splitPatternAutomaton(pattern), text);
  while (auto match = scanner.next())
    pieces.emplace_back(text.substr(match->begin, match->end - match->begin));
  return pieces;
}

TEST(PreTokenizer, SplitsAsGpt2) {
  auto gpt2 = [](std::string_view text) {
    return split(SplitPattern::Gpt2, text);
  };
  EXPECT_EQ(gpt2("Hello world's 123 end"),
            (Pieces{"Hello", " world", "'s", " 123", " end"}));
  // Contractions are lower case only.
  EXPECT_EQ(gpt2("it'S they'll"), (Pieces{"it", "'", "S", " they", "'ll"}));
  EXPECT_EQ(gpt2("a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(gpt2("a\n\nb  "), (Pieces{"a", "\n", "\n", "b", "  "}));
  EXPECT_EQ(gpt2("x=1;  // 中文，文"),
            (Pieces{"x", "=", "1", ";", " ", " //", " 中文", "，", "文"}));
  EXPECT_EQ(gpt2("\u3000中"), (Pieces{"\u3000", "中"}));
}

TEST(PreTokenizer, SplitsAsLlama3) {
  auto llama = [](std::string_view text) {
    return split(SplitPattern::Cl100k, text);
  };
  EXPECT_EQ(llama("it'S (x)12345"),
            (Pieces{"it", "'S", " (", "x", ")", "123", "45"}));
  EXPECT_EQ(llama("'\u017F'x"), (Pieces{"'\u017F", "'x"}));
  EXPECT_EQ(llama("\ttab!\n\n  end"), (Pieces{"\ttab", "!\n\n", " ", " end"}));
  EXPECT_EQ(llama(" \n \n  x"), (Pieces{" \n \n", " ", " x"}));
  EXPECT_EQ(llama("，中文 ，"), (Pieces{"，中文", " ，"}));
  EXPECT_EQ(llama(" 12"), (Pieces{" ", "12"}));
}

TEST(PreTokenizer, SplitsAsQwen2) {
  EXPECT_EQ(split(SplitPattern::Qwen2, "a123's"),
            (Pieces{"a", "1", "2", "3", "'s"}));
}

TEST(PreTokenizer, InvalidBytesAreNeitherLetterNorSpace) {
  EXPECT_EQ(split(SplitPattern::Gpt2, "a\xff\xfe!b \x80"),
            (Pieces{"a", "\xff\xfe!", "b", " \x80"}));
}

TEST(PreTokenizer, PiecesTileAnyText) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text = test::randomText(random, 30, /*invalid=*/true);
    for (SplitPattern pattern :
         {SplitPattern::Gpt2, SplitPattern::Cl100k, SplitPattern::Qwen2}) {
      std::string joined;
      for (const std::string &piece : split(pattern, text)) {
        ASSERT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

// Steps of every kind, against what `tokenizers` makes of the same text.
static Pieces steps(std::vector<PreTokenizerStep> list, std::string_view text) {
  PreTokenizer preTokenizer;
  preTokenizer.steps = std::move(list);
  Pieces pieces;
  preTokenizer.split(text, /*first=*/true, [&](std::string_view piece) {
    pieces.emplace_back(piece);
  });
  return pieces;
}

static PreTokenizerStep splitStep(std::string_view regex,
                                  SplitBehavior behavior, bool invert = false) {
  PreTokenizerStep step;
  step.regex = std::make_shared<const Regex>(*Regex::compile(regex));
  step.behavior = behavior;
  step.invert = invert;
  return step;
}

TEST(PreTokenizer, BehaviorsDifferInWhatBecomesOfMatches) {
  auto dashes = [](SplitBehavior behavior, bool invert = false) {
    return steps({splitStep("-", behavior, invert)}, "the-final--countdown");
  };
  EXPECT_EQ(dashes(SplitBehavior::Isolated),
            (Pieces{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(dashes(SplitBehavior::Removed),
            (Pieces{"the", "final", "countdown"}));
  EXPECT_EQ(dashes(SplitBehavior::Removed, /*invert=*/true),
            (Pieces{"-", "-", "-"}));
  EXPECT_EQ(dashes(SplitBehavior::Contiguous),
            (Pieces{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(dashes(SplitBehavior::MergedWithPrevious),
            (Pieces{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(dashes(SplitBehavior::MergedWithNext),
            (Pieces{"the", "-final", "-", "-countdown"}));
}

TEST(PreTokenizer, MetaspaceMarksWords) {
  PreTokenizerStep meta;
  meta.kind = PreTokenizerStep::Kind::Metaspace;
  meta.mark = "▁";
  EXPECT_EQ(steps({meta}, "Hey  friend"), (Pieces{"▁Hey", "▁", "▁friend"}));
  meta.split = false;
  EXPECT_EQ(steps({meta}, " Hey"), (Pieces{"▁Hey"}));
  meta.prepend = PrependScheme::Never;
  EXPECT_EQ(steps({meta}, "Hey you"), (Pieces{"Hey▁you"}));
  meta.prepend = PrependScheme::First;
  EXPECT_EQ(steps({splitStep(",", SplitBehavior::Removed), meta}, "a,b"),
            (Pieces{"▁a", "b"}));
}
