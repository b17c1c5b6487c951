#include "runtime/support/Floats.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include <gtest/gtest.h>

using namespace tessera;

namespace {

/// A storage format by its parameters; the slow twin of the conversions.
struct Format {
  int fractionBits, minExponent; // of the smallest normal
  double largest;
};
constexpr Format kF16{10, -14, 65504};
constexpr Format kBf16{7, -126, 0x1.fep127};

double decode(const Format &format, std::uint16_t bits) {
  const int exponentBits = 15 - format.fractionBits;
  const int biased = (bits >> format.fractionBits) & ((1 << exponentBits) - 1);
  const int fraction = bits & ((1 << format.fractionBits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (biased == (1 << exponentBits) - 1)
    return fraction ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  const int exponent = std::max(biased, 1) - 1 + format.minExponent;
  const double significand =
      fraction + (biased ? std::ldexp(1.0, format.fractionBits) : 0.0);
  return sign * std::ldexp(significand, exponent - format.fractionBits);
}

/// Rounds to the format's grid, ties to even, in double precision.
double roundTo(const Format &format, double value) {
  if (value == 0 || !std::isfinite(value))
    return value;
  const int exponent = std::max(std::ilogb(value), format.minExponent);
  const double ulp = std::ldexp(1.0, exponent - format.fractionBits);
  const double rounded = std::nearbyint(value / ulp) * ulp;
  return std::fabs(rounded) > format.largest
             ? std::copysign(std::numeric_limits<double>::infinity(), value)
             : rounded;
}

/// Values around every representable one: itself, its neighbours in fp32, and
/// the middle to the next one with its neighbours, where ties break.
template <typename Check>
void forInterestingFloats(const Format &format, Check check) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double value = decode(format, static_cast<std::uint16_t>(bits));
    if (!std::isfinite(value))
      continue;
    const double next = decode(format, static_cast<std::uint16_t>(bits + 1));
    const double middle =
        std::isfinite(next) ? (value + next) / 2 : value * 1.5;
    for (const double center : {value, middle}) {
      const auto f = static_cast<float>(center);
      for (const float x :
           {f, std::nextafterf(f, INFINITY), std::nextafterf(f, -INFINITY)})
        check(x);
    }
  }
}

} // namespace

TEST(Floats, F16DecodesEveryBitPattern) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double expected = decode(kF16, half);
    const float got = f16ToFloat(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(got, expected) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(expected)) << bits;
      ASSERT_EQ(floatToF16(got), half);
    }
  }
}

TEST(Floats, Bf16DecodesEveryBitPattern) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto brain = static_cast<std::uint16_t>(bits);
    const double expected = decode(kBf16, brain);
    const float got = bf16ToFloat(brain);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(got, expected) << bits;
      ASSERT_EQ(floatToBf16(got), brain);
    }
  }
}

TEST(Floats, F16RoundsToNearestEven) {
  forInterestingFloats(kF16, [](float x) {
    ASSERT_EQ(f16ToFloat(floatToF16(x)), roundTo(kF16, x)) << x;
  });
  EXPECT_EQ(f16ToFloat(floatToF16(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(f16ToFloat(floatToF16(65520.0f))));
  EXPECT_EQ(floatToF16(-0x1p-26f), 0x8000);
}

TEST(Floats, Bf16RoundsToNearestEven) {
  forInterestingFloats(kBf16, [](float x) {
    if (std::isfinite(x)) {
      ASSERT_EQ(bf16ToFloat(floatToBf16(x)), roundTo(kBf16, x)) << x;
    }
  });
  EXPECT_TRUE(
      std::isinf(bf16ToFloat(floatToBf16(std::numeric_limits<float>::max()))));
}

TEST(Floats, NanStaysNanWithItsSign) {
  for (const std::uint32_t bits :
       {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffc00001u}) {
    const auto nan = std::bit_cast<float>(bits);
    const std::uint16_t half = floatToF16(nan), brain = floatToBf16(nan);
    EXPECT_TRUE(std::isnan(f16ToFloat(half))) << bits;
    EXPECT_TRUE(std::isnan(bf16ToFloat(brain))) << bits;
    EXPECT_EQ(half >> 15, bits >> 31);
    EXPECT_EQ(brain >> 15, bits >> 31);
  }
}
