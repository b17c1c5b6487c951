// Decoding on the emulated GPU: the logits of the CPU, and of a token the same
// bits however it is computed: in a chunk of a prompt, alone, or with others in
// a batch.
#include "runtime/infer/Decoder.h"
#include "test/runtime/infer/TinyDecoder.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Logits = std::vector<float>;

/// A session and what decodes in it.
struct Model {
  std::unique_ptr<hal::Session> session;
  std::unique_ptr<Decoder> decoder;

  void open(const std::string &kind) {
    session = testing::openTinyDecoder(kind);
    ASSERT_TRUE(session);
    auto made = Decoder::create(*session);
    ASSERT_TRUE(made.ok()) << made.message();
    decoder = made.take();
  }
  /// The other one's weights: initial values are drawn by each device's own
  /// functions.
  void takeWeights(const hal::Session &other) {
    for (const hal::TensorInfo &tensor : session->state()) {
      if (tensor.role == artifact::Role::cache)
        continue;
      std::vector<std::byte> bytes(tensor.bytes);
      ASSERT_TRUE(other.readState(tensor.name, bytes).ok()) << tensor.name;
      ASSERT_TRUE(session->writeState(tensor.name, bytes).ok()) << tensor.name;
    }
  }
  Logits logits(int64_t i) const {
    std::span<const float> row = decoder->logits(i);
    return Logits(row.begin(), row.end());
  }
  /// Logits after the first `chunk` tokens, read as a prompt, and after each of
  /// the others.
  std::vector<Logits> tokenByToken(std::span<const int32_t> tokens,
                                   size_t chunk) {
    Sequence sequence;
    EXPECT_TRUE(decoder->read(sequence, tokens.first(chunk)).ok());
    std::vector<Logits> result = {logits(0)};
    Sequence *one[] = {&sequence};
    for (size_t at = chunk; at < tokens.size(); ++at) {
      EXPECT_TRUE(decoder->step(one, tokens.subspan(at, 1)).ok());
      result.push_back(logits(0));
    }
    decoder->release(sequence);
    return result;
  }
};

std::vector<int32_t> text(int count, int seed) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back((i * 31 + seed * 17 + i * i) % 67);
  return tokens;
}

class EmulatedDecoderTest : public ::testing::TestWithParam<std::string> {
protected:
  void SetUp() override { gpu.open(GetParam()); }
  bool isFp32() const { return GetParam().starts_with("fp32"); }
  Model gpu;
};

TEST_P(EmulatedDecoderTest, LogitsAreThoseOfTheCpu) {
  Model cpu;
  cpu.open(GetParam().substr(0, GetParam().find('@')));
  gpu.takeWeights(*cpu.session);
  // Two chunks of a prompt and some of the next one, then token by token.
  std::vector<int32_t> tokens = text(24, 1);
  std::vector<Logits> expected = cpu.tokenByToken(tokens, 17),
                      actual = gpu.tokenByToken(tokens, 17);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    double largest = 0, apart = 0;
    for (size_t at = 0; at < expected[i].size(); ++at) {
      largest = std::max<double>(largest, std::abs(expected[i][at]));
      apart =
          std::max<double>(apart, std::abs(actual[i][at] - expected[i][at]));
    }
    EXPECT_GT(largest, 0);
    EXPECT_LE(apart, largest * (isFp32() ? 1e-4 : 3e-2)) << "token " << 17 + i;
  }
}

TEST_P(EmulatedDecoderTest, BitsAreTheSameAloneInABatchAndInAPrompt) {
  std::vector<int32_t> tokens = text(24, 1);
  std::vector<Logits> alone = gpu.tokenByToken(tokens, 9);
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
          gpu.decoder->read(beside[i], text(5 + 14 * int(i), 3 + int(i))).ok());
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

INSTANTIATE_TEST_SUITE_P(Kinds, EmulatedDecoderTest,
                         ::testing::Values("fp32@sm_80", "bf16@sm_80",
                                           "fp32_kv@sm_80", "bf16_kv@sm_90a",
                                           "bf16@sm_90a", "fp32_experts@sm_80",
                                           "bf16_experts@sm_90a"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '@', '_');
                           return name;
                         });

} // namespace
} // namespace tessera
