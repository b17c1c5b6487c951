// Conversions of the storage formats bf16 and f16 (IEEE 754 binary16), round to
// nearest even; a NaN becomes a quiet NaN with the same sign. Also the values
// of e4m3fn (arxiv.org/abs/2209.05433).
#pragma once
#include <bit>
#include <cstdint>

namespace tessera {

constexpr float bf16ToFloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

constexpr std::uint16_t floatToBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  // Adding 0x7fff plus the last kept bit carries exactly when nearest-even
  // rounds up, into the exponent too, so the largest values become infinity.
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

constexpr float f16ToFloat(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 0) { // zero and subnormals: fraction × 2^-24, exact in fp32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    const std::uint32_t quiet = fraction ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | (fraction << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) |
                              (fraction << 13));
}

constexpr std::uint16_t floatToF16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return static_cast<std::uint16_t>(sign | 0x7e00 |
                                      ((magnitude >> 13) & 0x1ff));
  if (magnitude >= 0x477ff000) // 65520 and above round to infinity
    return sign | 0x7c00;
  if (magnitude >= 0x38800000) { // normal: drop 13 fraction bits
    const std::uint32_t rebased = magnitude - (112u << 23);
    return static_cast<std::uint16_t>(
        sign | ((rebased + 0xfff + ((rebased >> 13) & 1)) >> 13));
  }
  if (magnitude < 0x33000000) // below 2^-25, half of the smallest subnormal
    return sign;
  const std::uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
  const std::uint32_t shift = 126 - (magnitude >> 23);
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t kept = significand >> shift;
  const std::uint32_t rest = significand & ((1u << shift) - 1);
  const bool up = rest > half || (rest == half && (kept & 1));
  return static_cast<std::uint16_t>(sign | (kept + up));
}

inline constexpr float kLargestE4m3 = 448;

/// e4m3fn has no infinities, and a NaN of each sign: all of exponent and
/// fraction are ones.
constexpr bool isE4m3Nan(std::uint8_t bits) { return (bits & 0x7f) == 0x7f; }

constexpr float e4m3ToFloat(std::uint8_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80) << 24;
  const std::uint32_t exponent = bits >> 3 & 15, fraction = bits & 7;
  if (isE4m3Nan(bits))
    return std::bit_cast<float>(sign | 0x7fc00000);
  if (exponent == 0) { // zero and subnormals: fraction × 2^-9
    const float magnitude = static_cast<float>(fraction) * 0x1p-9f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>(sign | ((exponent + 120) << 23) |
                              (fraction << 20));
}

} // namespace tessera
