#include "runtime/infer/Perplexity.h"
#include "runtime/infer/TokenScores.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

using namespace tessera;

namespace {

/// After token t, t + 1 has the logit 3 and every other token 0; knows what
/// each page holds, so that texts which share one are seen.
class Counting final : public PagedModel {
public:
  Counting() {
    sizes = {.context = 8,
             .page = 2,
             .pages = 9,
             .chunk = 4,
             .vocab = 10,
             .buckets = {1, 2, 3}};
  }
  const DecoderShape &shape() const override { return sizes; }
  Status prefill(const CachedText &text, std::span<const int32_t> tokens,
                 const Wanted &) override {
    EXPECT_TRUE(sizes.hasWholePrompts && text.length == 0);
    EXPECT_LE(int64_t(tokens.size()), sizes.chunk);
    for (int64_t at = 0; at < int64_t(tokens.size()); ++at)
      owner[text.pages[at / 2] * 2 + at % 2] = at;
    rows.assign(1, std::vector<float>(10));
    rows[0][(tokens.back() + 1) % 10] = 3;
    return Status::success();
  }
  Status decode(std::span<const CachedText> texts,
                std::span<const int32_t> tokens, const Wanted &) override {
    most = std::max(most, texts.size());
    if (sizes.states > 0)
      for (const CachedText &text : texts) {
        EXPECT_LT(text.state, sizes.states);
        if (text.length > 0)
          EXPECT_EQ(lengths[text.state], text.length);
        lengths[text.state] = text.length + 1;
      }
    rows.assign(texts.size(), std::vector<float>(10));
    for (size_t i = 0; i < texts.size(); ++i) {
      int64_t at = texts[i].length;
      int64_t slot = texts[i].pages[at / 2] * 2 + at % 2;
      if (at > 0)
        EXPECT_TRUE(slot % 2 == 0 || owner[slot - 1] == at - 1);
      owner[slot] = at;
      rows[i][(tokens[i] + 1) % 10] = 3;
    }
    return Status::success();
  }
  int32_t token(int64_t) const override { return kNoToken; }
  std::span<const float> logits(int64_t i) const override { return rows[i]; }

  DecoderShape sizes;
  size_t most = 0;
  std::map<int64_t, int64_t> owner;
  std::map<int32_t, int64_t> lengths; ///< of states
  std::vector<std::vector<float>> rows;
};

} // namespace

TEST(Perplexity, IsThatOfWindowsAlone) {
  // Windows [1 2 3 4 5] [5 6 7 8 0] [1 2 2 3 3] [7 8]: one of the four is not
  // foretold in the second, two are not in the third.
  std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 5, 6, 7, 8,
                                 0, 1, 2, 2, 3, 3, 7, 8};
  Counting model;
  auto measured = measurePerplexity(model, tokens, {}, 5);
  ASSERT_TRUE(measured.ok()) << measured.message();
  EXPECT_EQ(measured->counted, 13);
  EXPECT_EQ(model.most, 3u);
  double all = std::log(9 + std::exp(3.0));
  EXPECT_NEAR(measured->value, std::exp((13 * all - 10 * 3) / 13), 1e-6);
}

TEST(Perplexity, ForetellsTheFirstTokenBehindAStart) {
  Counting model;
  std::vector<int32_t> tokens = {1, 2, 3, 1}, starts = {0};
  auto measured = measurePerplexity(model, tokens, starts, 3);
  ASSERT_TRUE(measured.ok()) << measured.message();
  EXPECT_EQ(measured->counted, 3); // the last token alone is no window
  EXPECT_NEAR(measured->value, 9 * std::exp(-3.0) + 1, 1e-6);
}

TEST(Perplexity, SaysWhatDoesNotFit) {
  Counting model;
  std::vector<int32_t> tokens = {1, 2, 3}, one = {1};
  EXPECT_EQ(measurePerplexity(model, tokens, one, 8).message(),
            "windows of 8 tokens after 1 do not fit a context of 8");
  EXPECT_EQ(measurePerplexity(model, one, {}, 4).message(),
            "a text of 1 tokens has none to predict; give a longer one");
  model.sizes.pages = 3;
  EXPECT_EQ(measurePerplexity(model, tokens, {}, 8).message(),
            "a KV cache of 3 pages has no room for a window of 8 tokens; raise "
            "inference.pages");
}

TEST(TokenScores, HaveEveryTokenButTheFirstInOrder) {
  // More sequences than the pages hold at a time, some with nothing to predict.
  const std::vector<std::vector<int32_t>> texts = {
      {1, 2, 3, 4, 5, 6, 7, 8}, {4},      {}, {1, 2}, {3, 4, 9},
      {1, 2, 3, 4, 5, 6, 7, 9}, {7, 8, 9}};
  const std::vector<std::span<const int32_t>> sequences(texts.begin(),
                                                        texts.end());
  for (int64_t pages : {4, 5, 9}) {
    Counting model;
    model.sizes.pages = pages;
    std::vector<std::pair<std::size_t, int64_t>> seen, wanted;
    const double all = std::log(9 + std::exp(3.0));
    const Status status = scoreTokens(
        model, sequences, [&](std::size_t i, int64_t at, double logProb) {
          seen.emplace_back(i, at);
          const bool foretold = texts[i][at] == (texts[i][at - 1] + 1) % 10;
          EXPECT_NEAR(logProb, (foretold ? 3 : 0) - all, 1e-6);
        });
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::size_t i = 0; i < texts.size(); ++i)
      for (int64_t at = 1; at < int64_t(texts[i].size()); ++at)
        wanted.emplace_back(i, at);
    EXPECT_EQ(seen, wanted);
  }
}

TEST(TokenScores, HaveOneRowForEachState) {
  const std::vector<std::vector<int32_t>> texts = {
      {1, 2, 3, 4, 5, 6, 7, 8}, {4},      {}, {1, 2}, {3, 4, 9},
      {1, 2, 3, 4, 5, 6, 7, 9}, {7, 8, 9}};
  const std::vector<std::span<const int32_t>> sequences(texts.begin(),
                                                        texts.end());
  for (int64_t pages : {4, 5, 9})
    for (int64_t states : {1, 2, 5}) {
      Counting model;
      model.sizes.pages = pages;
      model.sizes.states = states;
      std::vector<int64_t> seen(texts.size(), 1);
      const double all = std::log(9 + std::exp(3.0));
      const Status status = scoreTokens(
          model, sequences, [&](std::size_t i, int64_t at, double logProb) {
            EXPECT_EQ(at, seen[i]++);
            const bool foretold = texts[i][at] == (texts[i][at - 1] + 1) % 10;
            EXPECT_NEAR(logProb, (foretold ? 3 : 0) - all, 1e-6);
          });
      ASSERT_TRUE(status.ok()) << status.message();
      for (std::size_t i = 0; i < texts.size(); ++i)
        EXPECT_EQ(seen[i], std::max<int64_t>(1, int64_t(texts[i].size())));
      EXPECT_LE(model.most, std::size_t(std::min<int64_t>(states, 3)));
    }
}

TEST(TokenScores, AreOfTheTokensAfterAWholePrompt) {
  const std::vector<std::vector<int32_t>> texts = {
      {1, 2, 3, 4, 5, 6, 7, 8}, {4}, {}, {1, 2}, {3, 4, 9}, {7, 8, 9}};
  const std::vector<int64_t> prompts = {4, 1, 0, 2, 2, 1};
  const std::vector<std::span<const int32_t>> sequences(texts.begin(),
                                                        texts.end());
  for (int64_t pages : {4, 5, 9}) {
    Counting model;
    model.sizes.pages = pages;
    model.sizes.hasWholePrompts = true;
    std::vector<std::pair<std::size_t, int64_t>> seen, wanted;
    const double all = std::log(9 + std::exp(3.0));
    const Status status = scoreTokens(
        model, sequences,
        [&](std::size_t i, int64_t at, double logProb) {
          seen.emplace_back(i, at);
          const bool foretold = texts[i][at] == (texts[i][at - 1] + 1) % 10;
          EXPECT_NEAR(logProb, (foretold ? 3 : 0) - all, 1e-6);
        },
        prompts);
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::size_t i = 0; i < texts.size(); ++i)
      for (int64_t at = std::max<int64_t>(prompts[i], 1);
           at < int64_t(texts[i].size()); ++at)
        wanted.emplace_back(i, at);
    EXPECT_EQ(seen, wanted);
  }
}

TEST(TokenScores, RefuseTextsWithoutAPromptWhereTheyAreWhole) {
  Counting model;
  model.sizes.hasWholePrompts = true;
  const std::vector<int32_t> text = {1, 2, 3, 4, 5, 6};
  const std::vector<std::span<const int32_t>> sequences = {text};
  const auto errorOf = [&](std::span<const int64_t> prompts) {
    return scoreTokens(
               model, sequences, [](std::size_t, int64_t, double) {}, prompts)
        .message();
  };
  EXPECT_EQ(errorOf({}),
            "the tokens of a text without a prompt cannot be scored with "
            "attention.prompts: bidirectional; leave that key out");
  const std::vector<int64_t> prompts = {5};
  EXPECT_EQ(errorOf(prompts),
            "the prompt has 5 tokens, which see each other (attention.prompts: "
            "bidirectional), and at most 4 are read at once; for a model "
            "directory, raise it by --set inference.chunk=N");
}

TEST(TokenScores, RefuseWhatDoesNotFit) {
  Counting model;
  model.sizes.pages = 3;
  const std::vector<int32_t> text = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<std::span<const int32_t>> sequences = {text};
  EXPECT_EQ(
      scoreTokens(model, sequences, [](std::size_t, int64_t, double) {})
          .message(),
      "a sequence of 8 tokens does not fit a context of 8 in a KV cache of 3 "
      "pages; raise inference.context or inference.pages");
}
