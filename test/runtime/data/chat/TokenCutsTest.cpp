#include "runtime/data/tokenizer/TokenCuts.h"
#include "TestTokenizers.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace tessera;
using namespace tessera::tokenizer;
using namespace tessera::tokenizer::test;

namespace {
std::vector<TokenCut> cutsOf(const Tokenizer &tokenizer, std::string_view text,
                             const std::vector<size_t> &offsets,
                             std::vector<uint32_t> &ids) {
  Encoder encoder(tokenizer);
  std::vector<TokenCut> cuts;
  encodeWithCuts(encoder, tokenizer, text, SpecialText::Parse, offsets, ids,
                 cuts);
  EXPECT_EQ(ids, Encoder(tokenizer).encode(text));
  EXPECT_EQ(cuts.size(), offsets.size());
  return cuts;
}
} // namespace

TEST(TokenCuts, OfBytesAreThoseOfAddingUpTokens) {
  const Tokenizer tokenizer = mustParse(tokenizerFields());
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::string text = randomText(random, random() % 40, false);
    std::vector<size_t> offsets;
    for (size_t i = 0; i <= text.size(); ++i)
      offsets.push_back(i);
    std::vector<uint32_t> ids;
    const auto cuts = cutsOf(tokenizer, text, offsets, ids);
    std::vector<size_t> begins, ends;
    size_t at = 0;
    for (uint32_t id : ids) {
      begins.push_back(at);
      ends.push_back(at += tokenizer.token(id).bytes.size());
    }
    ASSERT_EQ(at, text.size());
    for (size_t offset : offsets) {
      EXPECT_EQ(cuts[offset].ended,
                size_t(std::count_if(ends.begin(), ends.end(), [&](size_t end) {
                  return end <= offset;
                })));
      EXPECT_EQ(
          cuts[offset].begun,
          size_t(std::count_if(begins.begin(), begins.end(),
                               [&](size_t begin) { return begin < offset; })));
    }
  }
}

TEST(TokenCuts, OfANormalizingTokenizerFollowTheTokens) {
  // Spaces as ▁ and one before the text, as Llama 2 has them.
  nlohmann::json fields = tokenizerFields();
  fields["normalizer"] = {{"type", "Sequence"},
                          {"normalizers",
                           {{{"type", "Prepend"}, {"prepend", "▁"}},
                            {{"type", "Replace"},
                             {"pattern", {{"String", " "}}},
                             {"content", "▁"}}}}};
  fields["added_tokens"].push_back(
      addedToken(uint32_t(fields["model"]["vocab"].size()), "</s>"));
  const Tokenizer tokenizer = mustParse(fields);
  const std::string text = "the lazy dog's there</s>they're here";
  std::vector<uint32_t> ids;
  const size_t end = text.find("</s>");
  const std::vector<size_t> offsets = {0,       3,       end,
                                       end + 2, end + 4, text.size()};
  const auto cuts = cutsOf(tokenizer, text, offsets, ids);
  const size_t special =
      size_t(std::find(ids.begin(), ids.end(), *tokenizer.addedToken("</s>")) -
             ids.begin());
  EXPECT_EQ(cuts[0].ended, 0u);
  EXPECT_EQ(cuts[0].begun, 0u);
  // Before the space the tokens are those of "the" alone.
  EXPECT_EQ(cuts[1].ended, Encoder(tokenizer).encode("the").size());
  EXPECT_EQ(cuts[1].begun, cuts[1].ended);
  EXPECT_EQ(cuts[2].ended, special);
  EXPECT_EQ(cuts[2].begun, special);
  EXPECT_EQ(cuts[3].ended, special);
  EXPECT_EQ(cuts[3].begun, special + 1);
  EXPECT_EQ(cuts[4].ended, special + 1);
  EXPECT_EQ(cuts[4].begun, special + 1);
  EXPECT_EQ(cuts[5].ended, ids.size());
}

TEST(TokenCuts, OfSpacesAsUnderlinesAreExact) {
  nlohmann::json fields = {
      {"added_tokens", {addedToken(9, "</s>")}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", "▁"}},
          {{"type", "Replace"},
           {"pattern", {{"String", " "}}},
           {"content", "▁"}}}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor", nullptr},
      {"decoder",
       {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}}},
      {"model",
       {{"type", "BPE"},
        {"vocab",
         {{"▁", 0},
          {"t", 1},
          {"h", 2},
          {"e", 3},
          {"l", 4},
          {"a", 5},
          {"th", 6},
          {"the", 7},
          {"▁the", 8}}},
        {"merges", {"t h", "th e", "▁ the"}}}}};
  const Tokenizer tokenizer = mustParse(fields);
  std::vector<uint32_t> ids;
  // </s> | ▁the | ▁ | l | a: the first ▁ takes no byte of the text.
  const auto cuts = cutsOf(tokenizer, "</s>the la", {4, 5, 7, 8, 9, 10}, ids);
  ASSERT_EQ(ids, (std::vector<uint32_t>{9, 8, 0, 4, 5}));
  const size_t ended[] = {1, 1, 2, 3, 4, 5}, begun[] = {1, 2, 2, 3, 4, 5};
  for (size_t i = 0; i < cuts.size(); ++i) {
    EXPECT_EQ(cuts[i].ended, ended[i]) << i;
    EXPECT_EQ(cuts[i].begun, begun[i]) << i;
  }
}
