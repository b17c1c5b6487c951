// Groups of weights as e4m3 (QuantizeGroup.h), in vectors.
#include "runtime/weights/QuantizeGroup.h"
#include "runtime/weights/QuantizeLanes.h"

#include <bit>

namespace tessera {
namespace {

/// Fraction bits that f32 has beyond e4m3, and what its exponents are more.
constexpr int32_t kDropped = 20, kRebased = (127 - 7) << 3;
constexpr int32_t kMost = std::bit_cast<int32_t>(kLargestE4m3),
                  kLeastNormal = std::bit_cast<int32_t>(0x1p-6f);
/// A sum with it has multiples of 2^-9, as subnormals are.
constexpr float kShift = 0x1p14f;

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

TESSERA_INLINE bool body(std::size_t group, std::span<const float> weights,
                         std::span<int8_t> q, std::span<uint16_t> scales) {
  const Groups groups{weights, group};
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const std::span<const float> own = groups[i];
    const auto most = std::bit_cast<float>(largestBits(own));
    if (!(most <= largestWeight(8, false, true)))
      return false;
    scales[i] = roundedUp<AnyHalf>(most / kLargestE4m3);
    const float scale = f16ToFloat(scales[i]),
                inverse = scale == 0 ? 0 : 1 / scale;
    for (std::size_t k = 0; k < own.size(); k += kLanes) {
      Floats w;
      load(w, own.data() + k);
      auto bits = Words(w * inverse);
      round(bits);
      const Bytes bytes = __builtin_convertvector(bits, Bytes);
      std::memcpy(q.data() + i * group + k, &bytes, sizeof bytes);
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
