// Weights as e4m3, against what ml_dtypes 0.6 says of float8_e4m3fn.
#include "runtime/support/Floats.h"
#include "runtime/weights/QuantizeGroup.h"
#include "runtime/weights/QuantizeTensor.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace tessera;

namespace {

// clang-format off
/// What the bits 0x00 to 0x7e stand for.
constexpr float kNumbers[] = {
    0, 0.001953125, 0.00390625, 0.005859375, 0.0078125, 0.009765625,
    0.01171875, 0.013671875, 0.015625, 0.017578125, 0.01953125,
    0.021484375, 0.0234375, 0.025390625, 0.02734375, 0.029296875, 0.03125,
    0.03515625, 0.0390625, 0.04296875, 0.046875, 0.05078125, 0.0546875,
    0.05859375, 0.0625, 0.0703125, 0.078125, 0.0859375, 0.09375,
    0.1015625, 0.109375, 0.1171875, 0.125, 0.140625, 0.15625, 0.171875,
    0.1875, 0.203125, 0.21875, 0.234375, 0.25, 0.28125, 0.3125, 0.34375,
    0.375, 0.40625, 0.4375, 0.46875, 0.5, 0.5625, 0.625, 0.6875, 0.75,
    0.8125, 0.875, 0.9375, 1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875,
    2, 2.25, 2.5, 2.75, 3, 3.25, 3.5, 3.75, 4, 4.5, 5, 5.5, 6, 6.5, 7,
    7.5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 32,
    36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 88, 96, 104, 112, 120, 128,
    144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448};

struct Rounded {
  float from;
  uint8_t bits;
};
constexpr Rounded kRounded[] = {
    {10.592175f, 0x53}, {-318.83298f, 0xfa}, {401.9899f, 0x7d},
    {-68.6995f, 0xe9}, {-0.5369532f, 0xb1}, {0.5811181f, 0x31},
    {0.028422242f, 0x0f}, {-0.014729082f, 0x88}, {-0.003258199f, 0x82},
    {0.011976924f, 0x06}, {0.0007944421f, 0x00}, {-0.005849135f, 0x83},
    {448.0f, 0x7e}, {0.0009765625f, 0x00}, {0.00098f, 0x01},
    {0.0029296875f, 0x02}, {0.015f, 0x08}, {17.0f, 0x58}, {19.0f, 0x5a},
    {-1.0625f, 0xb8}, {-1.1875f, 0xba}, {1e-30f, 0x00}, {-0.0f, 0x80}};
// clang-format on

const CpuFeatures kThis = CpuFeatures::detect(), kNone = CpuFeatures::of({});

struct Groups {
  std::vector<int8_t> q;
  std::vector<uint16_t> scales;
  bool reached;

  Groups(const CpuFeatures &cpu, size_t group, std::span<const float> weights)
      : q(weights.size()), scales((weights.size() + group - 1) / group),
        reached(quantizeFloatsFor(cpu)(8, group, weights, q, scales, {})) {}
};

/// The bits of a weight whose group has the scale 1.
uint8_t roundOne(const CpuFeatures &cpu, float weight) {
  std::vector<float> weights(32);
  weights[5] = weight;
  weights[17] = -448;
  const Groups made(cpu, 32, weights);
  EXPECT_TRUE(made.reached);
  EXPECT_EQ(f16ToFloat(made.scales[0]), 1);
  EXPECT_EQ(uint8_t(made.q[17]), 0xfe);
  return uint8_t(made.q[5]);
}

std::vector<float> drawWeights(size_t count, float deviation) {
  std::mt19937 engine(11);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> weights(count);
  for (float &weight : weights)
    weight = normal(engine);
  return weights;
}

} // namespace

TEST(Floats, ReadEveryE4m3) {
  for (int bits = 0; bits < 0x7f; ++bits) {
    EXPECT_EQ(e4m3ToFloat(uint8_t(bits)), kNumbers[bits]) << bits;
    EXPECT_EQ(e4m3ToFloat(uint8_t(bits | 0x80)), -kNumbers[bits]) << bits;
  }
  EXPECT_TRUE(std::signbit(e4m3ToFloat(0x80)));
  EXPECT_TRUE(std::isnan(e4m3ToFloat(0x7f)));
  EXPECT_TRUE(std::isnan(e4m3ToFloat(0xff)));
}

// Each number, what is around it, and what is around the middle to the next
// one, where ties go to even bits.
TEST(QuantizeFloats, RoundToTheNearest) {
  for (const CpuFeatures &cpu : {kThis, kNone}) {
    for (int bits = 0; bits < 0x7f; ++bits)
      for (int sign : {0, 0x80}) {
        const float one = sign ? -1.0f : 1.0f, at = kNumbers[bits];
        EXPECT_EQ(roundOne(cpu, one * at), bits | sign);
        if (bits == 0x7e)
          continue;
        const float middle = (at + kNumbers[bits + 1]) / 2;
        EXPECT_EQ(roundOne(cpu, one * middle), (bits + bits % 2) | sign);
        EXPECT_EQ(roundOne(cpu, one * std::nextafter(middle, 0.0f)),
                  bits | sign);
        EXPECT_EQ(roundOne(cpu, one * std::nextafter(middle, 500.0f)),
                  (bits + 1) | sign);
      }
    for (const Rounded &each : kRounded)
      EXPECT_EQ(roundOne(cpu, each.from), each.bits) << each.from;
  }
}

// A scale is the largest weight / 448, and none is 0 where a weight is not;
// down to where f16 is subnormal. What is left is half a step of a weight, or
// of the least numbers, at most, and 2^-11 of it where the scale is less.
TEST(QuantizeFloats, AreNearTheirWeights) {
  for (size_t group : {32, 64, 128})
    for (int exponent = 0; exponent < 34; ++exponent) {
      const std::vector<float> weights =
          drawWeights(5 * group + 32, std::exp2(-float(exponent)));
      const Groups made(kThis, group, weights), plain(kNone, group, weights);
      ASSERT_TRUE(made.reached && plain.reached);
      ASSERT_EQ(made.scales, plain.scales);
      ASSERT_EQ(made.q, plain.q);
      for (size_t i = 0; i < weights.size(); ++i) {
        const float scale = f16ToFloat(made.scales[i / group]),
                    value = scale * e4m3ToFloat(uint8_t(made.q[i]));
        ASSERT_GT(scale, 0);
        ASSERT_LE(std::fabs(value - weights[i]),
                  std::max(std::fabs(weights[i]) * (0x1p-4f + 0x1p-11f),
                           scale * 0x1.01p-10f))
            << exponent << " " << weights[i];
      }
    }
}

// A group of zeros has the scale 0; what f16 does not reach is refused.
TEST(QuantizeFloats, HaveNoScaleBeyondItsReach) {
  for (const CpuFeatures &cpu : {kThis, kNone}) {
    std::vector<float> weights(64);
    const Groups zeros(cpu, 32, weights);
    EXPECT_TRUE(zeros.reached);
    EXPECT_EQ(zeros.scales, (std::vector<uint16_t>{0, 0}));
    EXPECT_EQ(zeros.q, std::vector<int8_t>(64));
    const float most = 65504.0f * 448;
    EXPECT_EQ(most, largestWeight(8, false, true));
    for (float weight : {most, -most}) {
      weights[40] = weight;
      EXPECT_TRUE(Groups(cpu, 32, weights).reached);
    }
    for (float weight :
         {std::nextafter(most, INFINITY), -INFINITY, INFINITY, NAN, -NAN}) {
      weights[40] = weight;
      EXPECT_FALSE(Groups(cpu, 32, weights).reached) << weight;
    }
  }
}

// As micropanels have them: lane n of a word holds four columns of row n.
TEST(QuantizeFloats, LieInMicropanels) {
  const QuantizedLayout layout{13, 200, 8, 64, false, true};
  const std::vector<float> weights = drawWeights(13 * 200, 0.02f);
  std::vector<uint32_t> values(layout.words() * 16, 0xffffffff);
  std::vector<uint16_t> scales(layout.scaleRows() * 16, 0xffff);
  ASSERT_TRUE(quantizeMicropanel(layout, SafetensorsType::f32,
                                 std::as_bytes(std::span(weights)), values,
                                 scales));
  for (int64_t n = 0; n < 16; ++n)
    for (int64_t k = 0; k < 224; ++k) {
      const float scale = f16ToFloat(scales[k / 64 * 16 + n]),
                  value =
                      e4m3ToFloat(uint8_t(values[k / 4 * 16 + n] >> k % 4 * 8));
      const float weight = n < 13 && k < 200 ? weights[n * 200 + k] : 0;
      EXPECT_NEAR(scale * value, weight, std::fabs(weight) / 15 + 1e-6f);
    }
}
