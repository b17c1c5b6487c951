// Numbers of NF4, the 4-bit normal float of QLoRA, with doubly quantized
// absmax; both tables are those of bitsandbytes.
#pragma once
#include "runtime/support/QuantizedLayout.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>

namespace tessera {

/// Quantiles of the normal distribution scaled to [-1, 1], with an exact zero
/// (Dettmers et al. 2023, appendix E).
inline constexpr std::array<float, 16> kNormalFloats = {-1.0f,
                                                        -0.6961928009986877f,
                                                        -0.5250730514526367f,
                                                        -0.39491748809814453f,
                                                        -0.28444138169288635f,
                                                        -0.18477343022823334f,
                                                        -0.09105003625154495f,
                                                        0.0f,
                                                        0.07958029955625534f,
                                                        0.16093020141124725f,
                                                        0.24611230194568634f,
                                                        0.33791524171829224f,
                                                        0.44070982933044434f,
                                                        0.5626170039176941f,
                                                        0.7229568362236023f,
                                                        1.0f};

/// 10^(i - 6) and 0.1 + 0.45 / 2^i of i = floor(log2 m), in the order of bits
/// 23 to 26 of m as f32, so that i = 0 is last; 1.0 is the number of m = 128.
inline constexpr std::array<float, 16> kDynamicPowers = {
    1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1e-6f};
inline constexpr std::array<float, 16> kDynamicMeans = {
    0.325f, 0.2125f, 0.15625f, 0.128125f, 0.1140625f, 0.10703125f, 1, 0,
    0,      0,       0,        0,         0,          0,           0, 0.55f};

/// The number of 8 bits by which absmax is quantized, sorted by index
/// (create_dynamic_map of bitsandbytes; Dettmers 2016,
/// arxiv.org/abs/1511.04561): m = |index - 127| has the sign of the difference;
/// with 2^i ≤ m < 2^(i + 1) the number is 10^(i - 6) × the middle of part m -
/// 2^i of [0.1, 1] in 2^i parts, but 0 of m = 0 and 1 of m = 128. Kernels
/// compute the same (Nf4Scales.cpp).
inline float dynamicFloat(uint8_t index) {
  const int difference = int(index) - 127;
  const auto bits = std::bit_cast<uint32_t>(float(std::abs(difference)));
  const float fraction =
      std::bit_cast<float>((bits & 0x7fffffu) | 0x3f800000u) - 1.0f;
  const uint32_t at = bits >> 23 & 15;
  const float middle = fraction * 0.9f + kDynamicMeans[at];
  const int sign = (difference > 0) - (difference < 0);
  return middle * kDynamicPowers[at] * float(sign);
}

/// absmax of a group of row n; at(i) is word i of the row's scales
/// (QuantizedLayout.h).
template <typename At>
float normalFloatAbsmax(const QuantizedLayout &layout, int64_t n, int64_t group,
                        At at) {
  constexpr int64_t kAbsmax = QuantizedLayout::kNf4Absmax;
  const int64_t spans = layout.nf4Spans(),
                span = (n * layout.groups() % kAbsmax + group) / kAbsmax;
  const uint32_t codes = at(1 + spans + group / 4);
  const float code = dynamicFloat(uint8_t(codes >> (group % 4 * 8)));
  const float part = code * std::bit_cast<float>(uint32_t(at(1 + span)));
  return part + std::bit_cast<float>(uint32_t(at(0)));
}

} // namespace tessera
