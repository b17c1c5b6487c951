// Groups of weights as e4m3 (QuantizeGroup.h), in vectors.
#include "runtime/support/Floats.h"
#include "runtime/train/QuantizeGroup.h"

#include <algorithm>
#include <bit>
#include <cstring>

// Bodies are inlined into functions for one processor each.
#define TESSERA_INLINE [[gnu::always_inline]] inline

namespace tessera {
namespace {

constexpr std::size_t kLanes = 8;
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Words __attribute__((vector_size(4 * kLanes)));
typedef int8_t Bytes __attribute__((vector_size(kLanes)));

constexpr int32_t kMagnitude = 0x7fffffff; // bits of a float without its sign
/// Fraction bits that f32 has beyond e4m3, and what its exponents are more.
constexpr int32_t kDropped = 20, kRebased = (127 - 7) << 3;
constexpr int32_t kMost = std::bit_cast<int32_t>(kLargestE4m3),
                  kLeastNormal = std::bit_cast<int32_t>(0x1p-6f);
/// A sum with it has multiples of 2^-9, as subnormals are.
constexpr float kShift = 0x1p14f;

/// The largest magnitude: floats without a sign are in the order of their bits.
TESSERA_INLINE float largest(std::span<const float> weights) {
  Words most{};
  for (std::size_t i = 0; i < weights.size(); i += kLanes) {
    Words w;
    std::memcpy(&w, weights.data() + i, sizeof w);
    w &= kMagnitude;
    most = most > w ? most : w;
  }
  int32_t greatest = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    greatest = std::max(greatest, most[lane]);
  return std::bit_cast<float>(greatest);
}

/// The nearest e4m3, ties to even. Adding half of what is dropped carries into
/// the exponent where that is right.
TESSERA_INLINE void round(Words &bits) {
  const Words sign = bits >> 24 & 0x80;
  Words magnitude = bits & kMagnitude;
  magnitude = magnitude < kMost ? magnitude : kMost + Words{};
  const Words half = (1 << (kDropped - 1)) - 1 + (magnitude >> kDropped & 1),
              normal = ((magnitude + half) >> kDropped) - kRebased,
              subnormal =
                  Words(Floats(magnitude) + kShift) - Words(kShift + Floats{});
  bits = (magnitude < kLeastNormal ? subnormal : normal) | sign;
}

TESSERA_INLINE uint16_t scaleOf(float most) {
  const float wanted = most / kLargestE4m3;
  uint16_t half = floatToF16(wanted);
  // Subnormal scales have but a few digits: up, so that no scale of weights is
  // 0, nor are many clipped.
  if (half < 0x400 && f16ToFloat(half) < wanted)
    ++half;
  return half;
}

TESSERA_INLINE bool body(std::size_t group, std::span<const float> weights,
                         std::span<int8_t> q, std::span<uint16_t> scales) {
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const std::size_t begin = i * group,
                      size = std::min(group, weights.size() - begin);
    const std::span<const float> own = weights.subspan(begin, size);
    const float most = largest(own);
    if (!(most <= largestWeight(8, false, true)))
      return false;
    scales[i] = scaleOf(most);
    const float scale = f16ToFloat(scales[i]),
                inverse = scale == 0 ? 0 : 1 / scale;
    for (std::size_t k = 0; k < size; k += kLanes) {
      Floats w;
      std::memcpy(&w, own.data() + k, sizeof w);
      auto bits = Words(w * inverse);
      round(bits);
      const Bytes bytes = __builtin_convertvector(bits, Bytes);
      std::memcpy(q.data() + begin + k, &bytes, sizeof bytes);
    }
  }
  return true;
}

bool onAny(int64_t, std::size_t group, std::span<const float> weights,
           std::span<int8_t> q, std::span<uint16_t> scales,
           std::span<uint16_t>) {
  return body(group, weights, q, scales);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] bool
withAvx2(int64_t, std::size_t group, std::span<const float> weights,
         std::span<int8_t> q, std::span<uint16_t> scales, std::span<uint16_t>) {
  return body(group, weights, q, scales);
}
#endif

} // namespace

QuantizeGroups quantizeFloatsFor(const CpuFeatures &cpu) {
#if defined(__x86_64__)
  if (cpu.has("avx2"))
    return withAvx2;
#endif
  return onAny;
}

} // namespace tessera
