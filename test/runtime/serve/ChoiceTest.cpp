// Stops in texts that come in pieces: the same as cutting the whole text.
#include "runtime/serve/Choice.h"
#include "runtime/serve/Service.h"
#include "runtime/support/SplitMix64.h"
#include "test/support/LettersTokenizer.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace tessera::serve {
namespace {

TEST(StopMatcher, IsCuttingTheWholeText) {
  int found = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SplitMix64 random(seed);
    std::string text;
    for (int i = 0; i < 30; ++i)
      text += char('a' + random() % 3);
    std::vector<std::string> stops;
    for (uint64_t i = random() % 3; i > 0; --i) {
      std::string &stop = stops.emplace_back();
      for (uint64_t j = 0; j <= random() % 5; ++j)
        stop += char('a' + random() % 3);
    }
    std::pair first(text.size() + 1, text.size()); // end, beginning
    for (const std::string &stop : stops)
      if (std::size_t at = text.find(stop); at != std::string::npos)
        first = std::min(first, std::pair(at + stop.size(), at));
    std::size_t end = first.second;
    StopMatcher matcher(stops);
    std::string out;
    for (std::size_t at = 0; at < text.size() && !matcher.found();) {
      std::size_t length = 1 + random() % 4;
      out += matcher.push(text.substr(at, length));
      at += length;
      EXPECT_TRUE(text.starts_with(out));
    }
    EXPECT_EQ(matcher.found(), end < text.size()) << seed;
    out += matcher.finish();
    EXPECT_EQ(out, text.substr(0, end)) << seed;
    found += matcher.found();
  }
  EXPECT_GT(found, 1000);
}

TEST(StopMatcher, HoldsBackNoMoreThanItMust) {
  StopMatcher matcher({"\n\nUser:", "###"});
  EXPECT_EQ(matcher.push("yes#"), "yes");
  EXPECT_EQ(matcher.push("a\n"), "#a");
  EXPECT_EQ(matcher.push("\nUs"), "");
  EXPECT_EQ(matcher.push("ed"), "\n\nUsed");
  EXPECT_EQ(matcher.push("##"), "");
  EXPECT_EQ(matcher.finish(), "##");
}

/// Two letters, and two special tokens behind them.
StatusOr<tokenizer::Tokenizer> lettersAndTags() {
  return testing::lettersTokenizer(R"("a": 0, "b": 1)", R"(
        {"id": 2, "content": "<tool_call>", "single_word": false,
         "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        {"id": 3, "content": "<|end|>", "single_word": false,
         "lstrip": false, "rstrip": false, "normalized": false, "special": true})");
}

// The tags of calls are special tokens of some tokenizers, and those of others
// plain text.
TEST(Choice, HasTheTextOfNoSpecialTokenButThoseThatAreShown) {
  auto letters = lettersAndTags();
  ASSERT_TRUE(letters.ok()) << letters.message();
  for (bool isShown : {false, true}) {
    std::string text;
    std::vector<int32_t> shown;
    if (isShown)
      shown = {2};
    Choice choice(*letters, {}, 0, /*logprobs=*/false, shown,
                  [&](const Delta &delta) { text += delta.text; });
    for (int32_t token : {0, 2, 1, 3, 0}) {
      TokenEvent event;
      event.token = token;
      EXPECT_TRUE(choice.token(event));
    }
    choice.finished({});
    EXPECT_EQ(text, isShown ? "a<tool_call>ba" : "aba");
  }
}

// The prompt again, special tokens of its text included, is one text with what
// follows; stops are looked for in that alone.
TEST(Choice, BeginsWithThePromptThatItEchoes) {
  auto letters = lettersAndTags();
  ASSERT_TRUE(letters.ok()) << letters.message();
  for (bool logprobs : {false, true}) {
    std::string text;
    std::vector<ChoiceToken> tokens;
    Echo echo{{0, 2, 1}, /*begin=*/1, /*showsSpecial=*/true};
    Choice choice(
        *letters, {"b"}, 0, logprobs, {},
        [&](const Delta &delta) {
          text += delta.text;
          tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
        },
        echo);
    TokenEvent event;
    if (logprobs) // one that frames the text, its own, and a suffix's
      for (int32_t token : {0, 0, 2, 1, 0})
        if (event.token = token; ++event.logprobs.chosen > 1)
          choice.scored(std::size_t(event.logprobs.chosen) - 1, event);
    event.token = 0;
    EXPECT_TRUE(choice.token(event));
    event.token = 1;
    EXPECT_FALSE(choice.token(event));
    choice.finished({});
    EXPECT_EQ(text, "a<tool_call>ba");
    if (!logprobs)
      continue;
    std::vector<int64_t> offsets;
    for (const ChoiceToken &each : tokens) {
      EXPECT_TRUE(each.hasScore);
      offsets.push_back(each.offset);
    }
    EXPECT_EQ(offsets, (std::vector<int64_t>{0, 1, 12, 13, 14}));
  }
}

TEST(Choice, TheFirstTokenOfAllHasNoLogprob) {
  auto letters = lettersAndTags();
  ASSERT_TRUE(letters.ok()) << letters.message();
  std::vector<bool> scores;
  Choice choice(
      *letters, {}, 0, /*logprobs=*/true, {},
      [&](const Delta &delta) {
        for (const ChoiceToken &each : delta.tokens)
          scores.push_back(each.hasScore);
      },
      Echo{{0, 1, 0}});
  TokenEvent event;
  choice.scored(1, event);
  choice.scored(2, event);
  choice.finished({});
  EXPECT_EQ(scores, (std::vector<bool>{false, true, true}));
}

TEST(Secrets, AreEqualOrNot) {
  EXPECT_TRUE(equalSecrets("key", "key"));
  for (const char *other : {"", "ke", "kez", "keykey", "Key"})
    EXPECT_FALSE(equalSecrets(other, "key"));
  EXPECT_FALSE(equalSecrets("key", ""));
}

} // namespace
} // namespace tessera::serve
