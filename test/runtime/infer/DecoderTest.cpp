// The decoder over compiled programs on a CPU: however a text came into the
// cache, in chunks, token by token, alone or beside others, in new pages or in
// those of a text that ended, it has the same logits.
#include "runtime/infer/Decoder.h"
#include "runtime/generate/Generate.h"
#include "runtime/infer/Sampler.h"
#include "test/runtime/infer/TinyDecoder.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace tessera {
namespace {

class DecoderTest : public ::testing::TestWithParam<const char *> {
protected:
  void SetUp() override { testing::openTiny(GetParam(), session, decoder); }

  static std::vector<int32_t> text(int count, int seed) {
    return testing::tinyText(count, seed);
  }

  /// Logits after `tokens`, read at once into an empty sequence.
  std::vector<float> readAtOnce(std::span<const int32_t> tokens) {
    Sequence sequence;
    EXPECT_TRUE(decoder->read(sequence, tokens).ok());
    std::span<const float> logits = decoder->logits(0);
    std::vector<float> copy(logits.begin(), logits.end());
    decoder->release(sequence);
    return copy;
  }

  void expectSame(std::span<const float> actual,
                  const std::vector<float> &expected) {
    double largest = 0, apart = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      largest = std::max<double>(largest, std::abs(expected[i]));
      apart = std::max<double>(apart, std::abs(actual[i] - expected[i]));
    }
    EXPECT_GT(largest, 0);
    EXPECT_LE(apart,
              largest * (GetParam() == std::string("fp32") ? 1e-5 : 3e-2));
  }

  std::unique_ptr<hal::Session> session;
  std::unique_ptr<Decoder> decoder;
};

TEST_P(DecoderTest, GoesOnAfterAnEarlierToken) {
  std::vector<int32_t> first = text(29, 1), second = text(29, 2);
  int64_t before = decoder->freePages(), page = decoder->shape().page;
  for (int64_t kept : {int64_t(0), int64_t(1), page - 1, page, page + 1}) {
    std::copy_n(first.begin(), kept, second.begin());
    std::vector<float> expected = readAtOnce(second);
    Sequence sequence;
    ASSERT_TRUE(decoder->read(sequence, first).ok());
    decoder->truncate(sequence, kept);
    EXPECT_EQ(sequence.length(), kept);
    EXPECT_EQ(before - decoder->freePages(), (kept + page - 1) / page);
    ASSERT_TRUE(
        decoder->read(sequence, std::span(second).subspan(size_t(kept))).ok());
    expectSame(decoder->logits(0), expected);
    decoder->release(sequence);
    EXPECT_EQ(decoder->freePages(), before);
  }
}

TEST_P(DecoderTest, KnowsWhatItWasMadeFor) {
  const DecoderShape &shape = decoder->shape();
  EXPECT_EQ(shape.context, 40);
  EXPECT_EQ(shape.page, 8);
  EXPECT_EQ(shape.pages, 9);
  EXPECT_EQ(shape.chunk, 7);
  EXPECT_EQ(shape.vocab, 67);
  EXPECT_EQ(shape.buckets, (std::vector<int64_t>{1, 2, 3}));
}

// Bytes of what a token and a head of 8 numbers keep.
TEST_P(DecoderTest, CachesHaveTheirBytes) {
  const std::map<std::string, uint64_t> bytes = {
      {"fp32", 32}, {"bf16", 16}, {"fp32_kv", 8 + 4}, {"bf16_kv", 8 + 2}};
  uint64_t sum = 0;
  for (const hal::TensorInfo &tensor : session->state())
    if (tensor.role == artifact::Role::cache)
      sum += tensor.bytes;
  const uint64_t rows = 2 * 2 * 2 * 9 * 8; // of layers, heads, slots
  EXPECT_EQ(sum, rows * bytes.at(GetParam()));
}

TEST_P(DecoderTest, TokenByTokenIsAtOnce) {
  std::vector<int32_t> tokens = text(30, 1);
  Sequence sequence;
  ASSERT_TRUE(decoder->read(sequence, std::span(tokens).first(10)).ok());
  Sequence *one[] = {&sequence};
  for (int at = 10; at < 30; ++at) {
    ASSERT_TRUE(decoder->step(one, std::span(tokens).subspan(at, 1)).ok());
    std::span<const float> logits = decoder->logits(0);
    std::vector<float> here(logits.begin(), logits.end());
    expectSame(here, readAtOnce(std::span(tokens).first(at + 1)));
  }
  EXPECT_EQ(sequence.length(), 30);
}

TEST_P(DecoderTest, NeighboursDoNotMatter) {
  std::vector<std::vector<int32_t>> texts = {text(16, 1), text(9, 2),
                                             text(3, 3)};
  std::vector<Sequence> sequences(3);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(decoder->read(sequences[i], texts[i]).ok());
  for (int turn = 0; turn < 5; ++turn) {
    std::vector<Sequence *> batch;
    std::vector<int32_t> next;
    for (int i = 0; i < 3 - turn % 3; ++i) { // of three, two and one
      batch.push_back(&sequences[i]);
      next.push_back((turn * 7 + i * 13) % 67);
      texts[i].push_back(next.back());
    }
    ASSERT_TRUE(decoder->step(batch, next).ok());
    std::vector<std::vector<float>> logits;
    for (size_t i = 0; i < batch.size(); ++i) {
      std::span<const float> row = decoder->logits(i);
      logits.emplace_back(row.begin(), row.end());
    }
    for (size_t i = 0; i < batch.size(); ++i)
      expectSame(logits[i], readAtOnce(texts[i]));
  }
}

// The same place in the same program: the same bits, whoever is beside it and
// wherever its pages are.
TEST_P(DecoderTest, NeighboursChangeNoBit) {
  std::vector<std::vector<float>> seen;
  for (int round = 0; round < 3; ++round) {
    Sequence own, first, second;
    if (round == 2) // other pages
      ASSERT_TRUE(decoder->read(first, text(17, 8)).ok());
    ASSERT_TRUE(decoder->read(own, text(12, 1)).ok());
    if (round < 2)
      ASSERT_TRUE(decoder->read(first, text(3 + 9 * round, 5 + round)).ok());
    ASSERT_TRUE(decoder->read(second, text(9 - round, round)).ok());
    Sequence *batch[] = {&first, &own, &second};
    const int32_t next[] = {round, 42, 60 - round};
    ASSERT_TRUE(decoder->step(batch, next).ok());
    std::span<const float> logits = decoder->logits(1);
    seen.emplace_back(logits.begin(), logits.end());
    for (Sequence *each : batch)
      decoder->release(*each);
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST_P(DecoderTest, AStepThatDoesNotFitChangesNothing) {
  Sequence longest, first, second;
  ASSERT_TRUE(decoder->read(longest, text(40, 1)).ok());
  ASSERT_TRUE(decoder->read(first, text(24, 1)).ok());
  ASSERT_TRUE(decoder->read(second, text(8, 1)).ok()); // nine pages in all
  Sequence *both[] = {&first, &second}, *twice[] = {&first, &first};
  const int32_t tokens[] = {1, 2};
  EXPECT_NE(decoder->step(both, tokens).message().find("0 pages left"),
            std::string::npos);
  EXPECT_NE(decoder->step(twice, tokens).message().find("twice"),
            std::string::npos);
  EXPECT_EQ(first.length(), 24);
  decoder->release(longest);
  EXPECT_TRUE(decoder->step(both, tokens).ok());
}

TEST_P(DecoderTest, PagesGoRound) {
  std::vector<float> expected = readAtOnce(text(40, 4));
  for (int round = 0; round < 5; ++round) {
    Sequence other;
    ASSERT_TRUE(decoder->read(other, text(20, round)).ok());
    EXPECT_EQ(decoder->freePages(), 6);
    std::vector<float> again = readAtOnce(text(40, 4));
    EXPECT_EQ(again, expected);
    decoder->release(other);
  }
  EXPECT_EQ(decoder->freePages(), 9);
}

// A text that outgrows the context goes on from the last half of one.
TEST_P(DecoderTest, LongTextsBeginAgain) {
  std::vector<int32_t> tokens = text(90, 6);
  size_t begin = 0, compared = 0;
  {
    TextModel model = decodingModel(*decoder);
    EXPECT_EQ(model.vocab, 67);
    EXPECT_EQ(model.context, 40);
    EXPECT_EQ(model.rereads, 20);
    for (size_t end = 5; end <= tokens.size(); ++end) {
      if (end - begin > 40)
        begin = end - 20;
      auto logits = model.next(std::span(tokens).first(end));
      ASSERT_TRUE(logits.ok()) << logits.message();
      if (end - begin > 32) // no pages are left to compare with
        continue;
      std::vector<float> here(logits->begin(), logits->end());
      expectSame(here,
                 readAtOnce(std::span(tokens).subspan(begin, end - begin)));
      ++compared;
    }
  }
  EXPECT_GT(begin, 40u);
  EXPECT_GT(compared, 50u);
  EXPECT_EQ(decoder->freePages(), 9);
}

TEST_P(DecoderTest, WhatDoesNotFitIsRefusedAndNothingIsLost) {
  Sequence longest, second;
  ASSERT_TRUE(decoder->read(longest, text(40, 1)).ok());
  Sequence *one[] = {&longest};
  const int32_t token[] = {3};
  Status full = decoder->step(one, token);
  EXPECT_NE(full.message().find("context of 40"), std::string::npos);
  EXPECT_FALSE(decoder->hasRoom(second, 33)); // four pages are left
  Status pages = decoder->read(second, text(33, 1));
  EXPECT_NE(pages.message().find("no page left"), std::string::npos);
  EXPECT_EQ(decoder->freePages(), 4);
  EXPECT_EQ(longest.length(), 40);
  const int32_t unknown[] = {67};
  EXPECT_FALSE(decoder->read(second, unknown).ok());
  EXPECT_FALSE(decoder->read(second, {}).ok());
  EXPECT_TRUE(decoder->read(second, text(32, 1)).ok());
}

// What an input holds already is not written again: here somebody else forbids
// all tokens meanwhile, which nobody hears of before other tokens are allowed.
TEST_P(DecoderTest, WritesInputsThatChange) {
  Sequence sequence;
  ASSERT_TRUE(decoder->read(sequence, text(5, 1)).ok());
  auto choose = [&](int64_t choices) {
    Sequence *one[] = {&sequence};
    const int32_t token[] = {3};
    const TokenSampling sampling[] = {{.choices = choices}};
    EXPECT_TRUE(
        decoder->step(one, token, {.logits = false, .samplings = sampling})
            .ok());
    return decoder->token(0);
  };
  EXPECT_GE(choose(67), 0);
  auto allowed = std::ranges::find(session->inputs("decode_1"), "allowed",
                                   &hal::TensorInfo::name);
  const std::vector<std::byte> none(allowed->bytes);
  ASSERT_TRUE(session->writeInput("decode_1", "allowed", none).ok());
  EXPECT_EQ(choose(67), kNoToken);
  const int32_t token = choose(5);
  EXPECT_TRUE(token >= 0 && token < 5) << token;
}

// What a program chooses is what the host draws of its logits, whatever a text
// asks for and whoever is beside it; and what is not allowed never comes.
TEST_P(DecoderTest, ChoosesAsTheHostDoes) {
  const std::vector<SamplingOptions> all = {
      {.temperature = 0},
      {.temperature = 1, .seed = 3},
      {.temperature = 0.7f, .topK = 7, .topP = 0.9f, .seed = 1},
      {.temperature = 2, .minP = 0.1f, .repetitionPenalty = 1.4f},
      {.temperature = 1.2f,
       .presencePenalty = 0.7f,
       .frequencyPenalty = 0.3f,
       .bias = {{4, 2.5f}, {60, -3.0f}, {5, 1.0f}},
       .seed = 9}};
  TokenMask mask(67);
  for (size_t token = 1; token < 67; token += 3)
    mask.insert(token);
  ASSERT_EQ(decoder->shape().changes, 67);
  std::vector<Sequence> sequences(3);
  std::vector<std::vector<int32_t>> texts = {text(16, 1), text(9, 2),
                                             text(3, 3)};
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(decoder->read(sequences[i], texts[i]).ok());
  std::set<int32_t> seen;
  for (uint64_t turn = 0; turn < 8; ++turn) {
    std::vector<Sampler> samplers;
    std::vector<TokenSampling> samplings;
    std::vector<const TokenMask *> masks;
    for (size_t i = 0; i < 3; ++i) {
      samplers.emplace_back(all[(turn + i) % all.size()]);
      samplers.back().sawPrompt(texts[i]);
      for (int32_t token : std::span(texts[i]).subspan(2))
        samplers.back().saw(token);
      masks.push_back((turn + i) % 4 == 0 ? &mask : nullptr);
    }
    // One sampling leaves out the last tokens of the vocabulary.
    const int64_t choices[] = {67, 67, 50};
    for (size_t i = 0; i < 3; ++i)
      samplings.push_back(*samplers[i].sampling(67, masks[i] ? 67 : choices[i],
                                                turn, masks[i]));
    Sequence *batch[] = {&sequences[0], &sequences[1], &sequences[2]};
    const int32_t next[] = {texts[0].back(), texts[1].back(), texts[2].back()};
    const Wanted wanted{.logits = true, .samplings = samplings};
    ASSERT_TRUE(decoder->step(batch, next, wanted).ok());
    for (size_t i = 0; i < 3; ++i) {
      auto logits =
          decoder->logits(int64_t(i)).first(size_t(masks[i] ? 67 : choices[i]));
      auto expected = samplers[i].sample(logits, turn, masks[i]);
      ASSERT_TRUE(expected.ok()) << expected.message();
      EXPECT_EQ(decoder->token(int64_t(i)), *expected)
          << "turn " << turn << ", text " << i;
      if (masks[i])
        EXPECT_TRUE(mask.contains(size_t(decoder->token(int64_t(i)))));
      texts[i].push_back(decoder->token(int64_t(i)));
      seen.insert(texts[i].back());
    }
  }
  EXPECT_GT(seen.size(), 5u);
  // A prompt's last token, and samplings that no program was made for.
  Sampler sampler(all[1]);
  Sequence another;
  std::vector<ChangedLogit> many(68);
  TokenSampling sampling = *sampler.sampling(67, 67, 5);
  decoder->release(sequences[2]);
  ASSERT_TRUE(
      decoder->read(another, text(17, 6), {.samplings = {&sampling, 1}}).ok());
  EXPECT_EQ(decoder->token(0), *sampler.sample(decoder->logits(0), 5));
  sampling.changes = many;
  const int32_t one[] = {1};
  EXPECT_NE(decoder->read(another, one, {.samplings = {&sampling, 1}})
                .message()
                .find("a sampling changes 68 logits"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Precisions, DecoderTest,
                         ::testing::Values("fp32", "bf16", "fp32_kv",
                                           "bf16_kv"),
                         [](const auto &info) {
                           return std::string(info.param);
                         });

} // namespace
} // namespace tessera
