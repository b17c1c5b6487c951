// Decoding and embedding on the emulated GPU: the numbers of the CPU, and of a
// token or a text the same bits however it is computed: in a chunk of a prompt,
// alone, or with others in a batch.
#include "runtime/infer/Decoder.h"
#include "runtime/infer/EmbedPrograms.h"
#include "test/runtime/infer/TinyDecoder.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Numbers = std::vector<float>;

/// Weights are the CPU's: initial values are drawn by each device's own
/// functions.
void copyWeights(const hal::Session &from, hal::Session &to) {
  for (const hal::TensorInfo &tensor : to.state()) {
    if (tensor.role == artifact::Role::cache)
      continue;
    std::vector<std::byte> bytes(tensor.bytes);
    ASSERT_TRUE(from.readState(tensor.name, bytes).ok()) << tensor.name;
    ASSERT_TRUE(to.writeState(tensor.name, bytes).ok()) << tensor.name;
  }
}

void expectClose(const Numbers &actual, const Numbers &expected,
                 const std::string &kind) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0, apart = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max<double>(largest, std::abs(expected[i]));
    apart = std::max<double>(apart, std::abs(actual[i] - expected[i]));
  }
  EXPECT_GT(largest, 0);
  EXPECT_LE(apart, largest * (kind.starts_with("fp32") ? 1e-4 : 3e-2));
}

std::string onCpu(const std::string &kind) {
  return kind.substr(0, kind.find('@'));
}

using testing::tinyText;

/// A session and what decodes in it.
struct Model {
  std::unique_ptr<hal::Session> session;
  std::unique_ptr<Decoder> decoder;

  void open(const std::string &kind) {
    testing::openTiny(kind, session, decoder);
  }
  Numbers logits(int64_t i) const {
    std::span<const float> row = decoder->logits(i);
    return Numbers(row.begin(), row.end());
  }
  /// Logits after the first `chunk` tokens, read as a prompt, and after each of
  /// the others.
  std::vector<Numbers> tokenByToken(std::span<const int32_t> tokens,
                                    size_t chunk) {
    Sequence sequence;
    EXPECT_TRUE(decoder->read(sequence, tokens.first(chunk)).ok());
    std::vector<Numbers> result = {logits(0)};
    Sequence *one[] = {&sequence};
    for (size_t at = chunk; at < tokens.size(); ++at) {
      EXPECT_EQ(decoder->step(one, tokens.subspan(at, 1)).message(), "");
      result.push_back(logits(0));
    }
    decoder->release(sequence);
    return result;
  }
};

class EmulatedDecoderTest : public ::testing::TestWithParam<std::string> {
protected:
  void SetUp() override { gpu.open(GetParam()); }
  Model gpu;
};

TEST_P(EmulatedDecoderTest, LogitsAreThoseOfTheCpu) {
  Model cpu;
  cpu.open(onCpu(GetParam()));
  copyWeights(*cpu.session, *gpu.session);
  // Two chunks of a prompt and some of the next one, then token by token.
  std::vector<int32_t> tokens = tinyText(24, 1);
  std::vector<Numbers> expected = cpu.tokenByToken(tokens, 17),
                       actual = gpu.tokenByToken(tokens, 17);
  for (size_t i = 0; i < expected.size(); ++i)
    expectClose(actual[i], expected[i], GetParam());
}

TEST_P(EmulatedDecoderTest, BitsAreTheSameAloneInABatchAndInAPrompt) {
  std::vector<int32_t> tokens = tinyText(24, 1);
  std::vector<Numbers> alone = gpu.tokenByToken(tokens, 9);
  for (size_t end : {size_t(9), size_t(12), size_t(21), size_t(24)})
    EXPECT_EQ(gpu.tokenByToken(std::span(tokens).first(end), end)[0],
              alone[end - 9])
        << "in a prompt of " << end;
  for (size_t others : {1, 2}) {
    std::vector<Sequence> beside(others);
    Sequence own;
    ASSERT_TRUE(gpu.decoder->read(own, std::span(tokens).first(12)).ok());
    std::vector<Sequence *> batch;
    std::vector<int32_t> next;
    for (size_t i = 0; i < others; ++i) {
      ASSERT_TRUE(
          gpu.decoder->read(beside[i], tinyText(5 + 14 * int(i), 3 + int(i)))
              .ok());
      batch.push_back(&beside[i]);
      next.push_back(int32_t(40 + i));
    }
    batch.push_back(&own);
    next.push_back(tokens[12]);
    ASSERT_TRUE(gpu.decoder->step(batch, next).ok());
    EXPECT_EQ(gpu.logits(int64_t(others)), alone[13 - 9])
        << "with " << others << " others";
    for (Sequence *each : batch)
      gpu.decoder->release(*each);
  }
}

// A prompt whose tokens see each other is one chunk.
TEST(EmulatedPromptsTest, LogitsAreThoseOfTheCpu) {
  for (const char *kind : {"fp32_prompts@sm_80", "bf16_prompts@sm_90a"}) {
    Model cpu, gpu;
    cpu.open(onCpu(kind));
    gpu.open(kind);
    copyWeights(*cpu.session, *gpu.session);
    std::vector<int32_t> tokens = tinyText(24, 1);
    std::vector<Numbers> expected = cpu.tokenByToken(tokens, 17),
                         actual = gpu.tokenByToken(tokens, 17);
    for (size_t i = 0; i < expected.size(); ++i)
      expectClose(actual[i], expected[i], kind);
  }
}

class EmulatedEncoderTest : public ::testing::TestWithParam<std::string> {
protected:
  struct Encoder {
    std::unique_ptr<hal::Session> session;
    std::unique_ptr<EmbedPrograms> programs;

    void open(const std::string &kind) {
      testing::openTiny(kind, session, programs, 67);
    }
    std::vector<Numbers> embed(const std::vector<std::vector<int32_t>> &texts) {
      std::vector<TokenSequence> spans(texts.begin(), texts.end());
      size_t width = size_t(programs->shape().width);
      Numbers all(texts.size() * width);
      EXPECT_TRUE(embedAll(*programs, spans, all).ok());
      std::vector<Numbers> vectors;
      for (auto at = all.begin(); at != all.end(); at += width)
        vectors.emplace_back(at, at + width);
      return vectors;
    }
  };
};

TEST_P(EmulatedEncoderTest, VectorsAreThoseOfTheCpuAndOfATextAlone) {
  Encoder cpu, gpu;
  cpu.open(onCpu(GetParam()));
  gpu.open(GetParam());
  copyWeights(*cpu.session, *gpu.session);
  // Three in one program, one in the next, and the first one alone.
  std::vector<std::vector<int32_t>> texts = {tinyText(9, 1), tinyText(32, 2),
                                             tinyText(1, 3), tinyText(38, 4)};
  std::vector<Numbers> expected = cpu.embed(texts), actual = gpu.embed(texts);
  for (size_t i = 0; i < texts.size(); ++i) {
    expectClose(actual[i], expected[i], GetParam());
    EXPECT_EQ(gpu.embed({texts[i]})[0], actual[i]) << "text " << i;
  }
}

std::string nameOf(const ::testing::TestParamInfo<std::string> &info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '@', '_');
  std::replace(name.begin(), name.end(), '#', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Kinds, EmulatedDecoderTest,
                         ::testing::Values("bf16@sm_80", "bf16_kv@sm_90a",
                                           "fp32_experts@sm_80",
                                           "bf16_shared@sm_90a",
                                           "bf16@sm_80#hardware",
                                           "bf16_shared@sm_90a#hardware"),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Kinds, EmulatedEncoderTest,
                         ::testing::Values("fp32_encoder@sm_80",
                                           "bf16_encoder@sm_90a",
                                           "bf16_encoder@sm_90a#hardware"),
                         nameOf);

} // namespace
} // namespace tessera
