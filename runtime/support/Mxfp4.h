// Numbers of MXFP4 (OCP Microscaling Formats 1.0, section 5): a weight is an
// e2m1 times a power of two that 32 weights share.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace tessera {

/// By bits: a sign, two bits of exponent with bias 1, one of fraction.
inline constexpr std::array<float, 16> kMxfp4Numbers = {
    0, .5f, 1, 1.5f, 2, 3, 4, 6, 0, -.5f, -1, -1.5f, -2, -3, -4, -6};

/// 2^(exponent - 127), of which 0 is a subnormal number. 255 is NaN, for which
/// this is infinite; 254 is the largest.
inline float mxfp4Scale(uint8_t exponent) {
  return std::bit_cast<float>(
      std::max(uint32_t(exponent) << 23, uint32_t(1) << 22));
}

/// With a greater exponent a weight might not be finite in bf16, nor f32.
inline constexpr uint8_t kMostMxfp4Exponent = 127 + 125;

/// The exponent of group i, out of the word i / 4 of a row's scales.
inline uint8_t mxfp4Exponent(uint32_t word, int64_t i) {
  return uint8_t(word >> (i % 4 * 8));
}

} // namespace tessera
