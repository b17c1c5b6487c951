#include "runtime/weights/QuantizeTensor.h"
#include "runtime/support/Floats.h"
#include "runtime/weights/QuantizeGroup.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

using namespace tessera;

namespace {

struct Micropanel {
  std::vector<uint32_t> values;
  std::vector<uint16_t> scales;

  Micropanel(const QuantizedLayout &layout, std::span<const float> weights)
      : values(layout.words() * 16), scales(layout.scaleRows() * 16),
        of(layout) {
    EXPECT_TRUE(quantizeMicropanel(layout, SafetensorsType::f32,
                                   std::as_bytes(weights), values, scales));
  }
  int64_t q(int64_t row, int64_t k) const {
    uint32_t word = values[k / of.perWord() * 16 + row];
    auto from = k % of.perWord() * of.bits;
    return of.bits == 4 ? int64_t(word >> from & 15) - 8
                        : int64_t(int8_t(word >> from));
  }
  float scale(int64_t row, int64_t k) const {
    return f16ToFloat(scales[of.scalesAt(k / of.group) * 16 + row]);
  }
  int64_t zero(int64_t row, int64_t k) const {
    return of.zeros ? int64_t(f16ToFloat(
                          scales[(of.scalesAt(k / of.group) + 1) * 16 + row]))
                    : 0;
  }

  QuantizedLayout of;
};

std::vector<float> randomWeights(size_t count) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal(0, 0.1f);
  std::vector<float> weights(count);
  for (float &weight : weights)
    weight = normal(engine);
  return weights;
}

} // namespace

TEST(QuantizeMicropanel, IsNearTheWeights) {
  for (int64_t bits : {4, 8}) {
    QuantizedLayout layout{16, 75, bits, 32};
    std::vector<float> weights = randomWeights(16 * 75);
    Micropanel micropanel(layout, weights);
    double squares = 0;
    for (int64_t row = 0; row < 16; ++row)
      for (int64_t k = 0; k < 75; ++k) {
        float scale = micropanel.scale(row, k), weight = weights[row * 75 + k];
        double error = weight - double(micropanel.q(row, k)) * scale;
        squares += error * error;
        if (bits == 8)
          EXPECT_LE(std::fabs(error), std::fabs(scale) * 0.5001);
      }
    // Of weights of 0.1 with steps of the largest of 32 / 8, or / 127.
    EXPECT_LT(std::sqrt(squares / 1200), bits == 4 ? 0.01 : 0.0008);
  }
}

namespace {

/// The same in plain loops: q and the scale of a group.
struct PlainGroup {
  std::vector<int64_t> q;
  float scale = 0;

  PlainGroup(int64_t bits, std::span<const float> weights) {
    float largest = 0; // with its sign
    for (float weight : weights)
      if (std::fabs(weight) > std::fabs(largest))
        largest = weight;
    if (bits == 8) {
      const float wanted = std::fabs(largest) / 127;
      uint16_t half = floatToF16(wanted);
      half += half < 0x400 && f16ToFloat(half) < wanted;
      round(weights, f16ToFloat(half), -127, 127);
      return;
    }
    float least = INFINITY;
    float best = 0;
    for (int i = 0; i < 8; ++i) {
      float candidate =
          f16ToFloat(floatToF16(largest / -8 * (1 - 0.05f * float(i))));
      round(weights, candidate, -8, 7);
      float lanes[2] = {}; // in the order in which vectors add
      for (size_t k = 0; k < weights.size(); ++k) {
        float off = weights[k] - float(q[k]) * scale;
        lanes[k % 2] += off * off;
      }
      if (lanes[0] + lanes[1] < least) {
        least = lanes[0] + lanes[1];
        best = candidate;
      }
    }
    round(weights, best, -8, 7);
  }

private:
  void round(std::span<const float> weights, float by, int64_t low,
             int64_t high) {
    scale = by;
    q.clear();
    for (float weight : weights)
      q.push_back(by == 0 ? 0
                          : std::clamp<int64_t>(std::llrint(weight * (1 / by)),
                                                low, high));
  }
};

} // namespace

TEST(QuantizeMicropanel, IsWhatPlainLoopsGive) {
  for (int64_t bits : {4, 8})
    for (int64_t group : {32, 96})
      for (int64_t columns : {32, 64, 71, 100, 192, 1100}) {
        QuantizedLayout layout{16, columns, bits, group};
        std::vector<float> weights = randomWeights(16 * columns);
        for (int64_t k = 0; k < columns; ++k) {
          weights[columns + k] *= 1e-6f;                   // subnormal scales
          weights[2 * columns + k] = k % 2 ? 0.5f : -0.5f; // of both signs
          weights[3 * columns + k] = float(k % 9 - 4) * 0.5f; // halves
        }
        Micropanel micropanel(layout, weights);
        for (int64_t row = 0; row < 16; ++row)
          for (int64_t begin = 0; begin < columns; begin += group) {
            auto count = size_t(std::min(group, columns - begin));
            PlainGroup plain(
                bits, std::span(weights).subspan(row * columns + begin, count));
            ASSERT_EQ(micropanel.scale(row, begin), plain.scale)
                << bits << " " << columns << " " << row;
            for (size_t k = 0; k < count; ++k)
              ASSERT_EQ(micropanel.q(row, begin + int64_t(k)), plain.q[k])
                  << bits << " " << columns << " " << row << " " << begin + k;
          }
      }
}

namespace {

/// What a processor makes of groups.
struct Quantized {
  std::vector<int8_t> q;
  std::vector<uint16_t> scales, zeros;
  bool reached;

  Quantized(const CpuFeatures &cpu, int64_t bits, size_t group,
            std::span<const float> weights, bool withZeros = false)
      : q(weights.size()), scales((weights.size() + group - 1) / group),
        zeros(withZeros ? scales.size() : 0),
        reached(
            quantizeGroupsFor(cpu)(bits, group, weights, q, scales, zeros)) {}
};

const CpuFeatures kThis = CpuFeatures::detect();
const CpuFeatures kProcessors[] = {kThis, kThis.without("avx512f"),
                                   CpuFeatures::of({})};

} // namespace

// Several groups, of which the last may be shorter; scales down to where f16 is
// subnormal and 0.
TEST(QuantizeGroups, AreTheSameOnEveryProcessor) {
  for (int64_t bits : {4, 8})
    for (size_t group : {32, 64, 96})
      for (size_t count : {size_t(32), 4 * group, 4 * group + 32})
        for (int exponent = 0; exponent < 40; ++exponent) {
          std::vector<float> weights = randomWeights(count);
          for (float &weight : weights)
            weight *= std::exp2(-float(exponent));
          for (bool zeros : {false, true}) {
            const Quantized plain(kProcessors[2], bits, group, weights, zeros);
            EXPECT_TRUE(plain.reached);
            for (const CpuFeatures &cpu : kProcessors) {
              const Quantized fast(cpu, bits, group, weights, zeros);
              ASSERT_EQ(fast.reached, plain.reached);
              ASSERT_EQ(fast.scales, plain.scales) << bits << " " << exponent;
              ASSERT_EQ(fast.zeros, plain.zeros) << bits << " " << exponent;
              ASSERT_EQ(fast.q, plain.q) << bits << " " << exponent;
            }
          }
        }
}

TEST(QuantizeGroups, HaveNoScaleBeyondItsReach) {
  for (const CpuFeatures &cpu : kProcessors)
    for (int64_t bits : {4, 8})
      for (size_t at : {0, 17, 63}) {
        std::vector<float> weights = randomWeights(64);
        const float most = largestWeight(bits, false);
        for (float weight : {most, -most}) {
          weights[at] = weight;
          EXPECT_TRUE(Quantized(cpu, bits, 32, weights).reached);
        }
        for (float weight :
             {std::nextafter(most, INFINITY), -INFINITY, INFINITY, NAN, -NAN}) {
          weights[at] = weight;
          EXPECT_FALSE(Quantized(cpu, bits, 32, weights).reached)
              << bits << " " << at << " " << weight;
        }
      }
}

// As floats and as bf16 the same, in more columns than go at once.
TEST(QuantizeMicropanel, TakesEveryFloatType) {
  for (int64_t bits : {4, 8})
    for (int64_t group : {32, 96}) {
      QuantizedLayout layout{13, 1100, bits, group};
      std::vector<float> weights = randomWeights(13 * 1100);
      std::vector<uint16_t> halves(weights.size());
      for (size_t i = 0; i < weights.size(); ++i) {
        halves[i] = floatToBf16(weights[i]);
        weights[i] = bf16ToFloat(halves[i]);
      }
      Micropanel micropanel(layout, weights);
      std::vector<uint32_t> values(micropanel.values.size());
      std::vector<uint16_t> scales(micropanel.scales.size());
      EXPECT_TRUE(quantizeMicropanel(layout, SafetensorsType::bf16,
                                     std::as_bytes(std::span(halves)), values,
                                     scales));
      EXPECT_EQ(values, micropanel.values);
      EXPECT_EQ(scales, micropanel.scales);
    }
}

TEST(QuantizeMicropanel, TakesFinerStepsWithZeroPoints) {
  for (int64_t bits : {4, 8}) {
    QuantizedLayout plain{16, 75, bits, 32}, layout = plain;
    layout.zeros = true;
    std::vector<float> weights = randomWeights(16 * 75);
    for (float &weight : weights) // mostly of one sign
      weight = std::fabs(weight) - 0.01f;
    Micropanel micropanel(layout, weights), without(plain, weights);
    double squares = 0, others = 0;
    for (int64_t row = 0; row < 16; ++row)
      for (int64_t k = 0; k < 75; ++k) {
        float scale = micropanel.scale(row, k), weight = weights[row * 75 + k];
        int64_t zero = micropanel.zero(row, k);
        EXPECT_LE(zero, bits == 4 ? 7 : 127);
        EXPECT_GE(zero, bits == 4 ? -8 : -128);
        double error = weight - double(micropanel.q(row, k) - zero) * scale;
        if (bits == 8)
          EXPECT_LE(std::fabs(error), scale * 1.01) << row << " " << k;
        squares += error * error;
        error = weight - double(without.q(row, k)) * without.scale(row, k);
        others += error * error;
      }
    EXPECT_LT(squares, others * 0.6) << bits;
  }
}

TEST(QuantizeMicropanel, HasZerosWhereNothingIs) {
  for (int64_t bits : {4, 8}) {
    QuantizedLayout layout{3, 40, bits, 32};
    std::vector<float> weights = randomWeights(3 * 40);
    std::fill_n(weights.begin() + 40, 32, 0.0f); // a group of zeros
    Micropanel micropanel(layout, weights);
    for (int64_t row = 0; row < 16; ++row)
      for (int64_t k = row < 3 ? 40 : 0; k < 64; ++k)
        EXPECT_EQ(micropanel.q(row, k), 0) << bits << " " << row << " " << k;
    for (int64_t k = 0; k < 32; ++k)
      EXPECT_EQ(micropanel.q(1, k) * micropanel.scale(1, k), 0);
    EXPECT_EQ(micropanel.scale(1, 0), 0);
    EXPECT_EQ(micropanel.scale(3, 0), 0);
  }
}

TEST(QuantizeMicropanel, KeepsWhatItCanHold) {
  QuantizedLayout four{1, 32, 4, 32}, eight{1, 32, 8, 32};
  std::vector<float> weights(32);
  for (int i = 0; i < 32; ++i)
    weights[i] = float(i % 16 - 8) * 0.25f;
  Micropanel micropanel(four, weights);
  EXPECT_EQ(micropanel.scale(0, 0), 0.25f);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(micropanel.q(0, i), i % 16 - 8);
  for (float &weight : weights) // the largest one is positive
    weight = -weight;
  Micropanel turned(four, weights);
  EXPECT_EQ(turned.scale(0, 0), -0.25f);
  for (int i = 0; i < 32; ++i)
    weights[i] = float(i * 8 - 121) / 64;
  weights[31] = 127.0f / 64;
  Micropanel whole(eight, weights);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(float(whole.q(0, i)) * whole.scale(0, i), weights[i]);
}

TEST(QuantizeMicropanel, ClipsNoneOfTheSmallestWeights) {
  QuantizedLayout layout{1, 32, 8, 32};
  for (float largest : {0x1p-8f, 0x1.8p-9f, 0x1.01p-15f, 0x1p-17f, 0x1p-23f}) {
    std::vector<float> weights(32);
    for (int i = 0; i < 32; ++i)
      weights[i] = largest * float(i - 15) / 16;
    Micropanel micropanel(layout, weights);
    float scale = micropanel.scale(0, 0);
    ASSERT_GT(scale, 0) << largest;
    for (int i = 0; i < 32; ++i)
      EXPECT_LE(std::fabs(weights[i] - float(micropanel.q(0, i)) * scale),
                scale * 0.501f)
          << largest << " " << i;
  }
}
