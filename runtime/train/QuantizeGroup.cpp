#include "runtime/train/QuantizeGroup.h"
#include "runtime/support/CpuFeatures.h"
#include "runtime/support/Floats.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Bodies are inlined into functions for one processor each. None of those has
// fused multiply-adds, which round differently.
#define TESSERA_INLINE [[gnu::always_inline]] inline

namespace tessera {
namespace {

constexpr std::size_t kLanes = 8;
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Words __attribute__((vector_size(4 * kLanes)));
typedef int8_t Bytes __attribute__((vector_size(kLanes)));

/// The integers of a group are within [least, most].
struct Range {
  float least, most;
};
constexpr Range kRange8{-127, 127}, kRange4{-8, 7};

TESSERA_INLINE void load(Floats &to, const float *from) {
  std::memcpy(&to, from, sizeof to);
}

TESSERA_INLINE void fill(Floats &to, float x) {
  to = Floats{x, x, x, x, x, x, x, x};
}

/// To the nearest integers, half to even, of less than 2^22; clamped. The
/// inverse of a scale of 0 is 0, and with it all weights.
template <typename Processor>
TESSERA_INLINE void quantize(Floats &x, const Floats &inverse, Range range) {
  constexpr float kShift = 12582912; // 1.5 × 2^23: no fraction is left
  x = (x * inverse + kShift) - kShift;
  Floats least, most;
  fill(least, range.least);
  fill(most, range.most);
  Processor::clamp(x, least, most);
}

/// The first weight that is largest by magnitude.
TESSERA_INLINE float largestOf(std::span<const float> weights) {
  Floats least{}, most{};
  for (std::size_t i = 0; i < weights.size(); i += kLanes) {
    Floats w;
    load(w, weights.data() + i);
    least = w < least ? w : least;
    most = w > most ? w : most;
  }
  float low = 0, high = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    low = std::min(low, least[lane]);
    high = std::max(high, most[lane]);
  }
  if (high != -low)
    return high > -low ? high : low;
  for (float weight : weights)
    if (std::fabs(weight) == high)
      return weight;
  return 0;
}

/// What each processor has its own instructions for.
struct AnyProcessor {
  TESSERA_INLINE static void clamp(Floats &x, const Floats &least,
                                   const Floats &most) {
    x = x > least ? x : least;
    x = x < most ? x : most;
  }
  /// As f16 holds them.
  TESSERA_INLINE static void round(Floats &scales) {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      scales[lane] = f16ToFloat(floatToF16(scales[lane]));
  }
};

/// The largest weight / 127. Of subnormal scales f16 has but a few digits: up,
/// so that no weight clips and no scale of weights is 0.
float scaleOf8Bits(float largest) {
  const float wanted = largest / kRange8.most;
  uint16_t half = floatToF16(wanted);
  if (half < 0x400 && f16ToFloat(half) < wanted)
    ++half;
  return f16ToFloat(half);
}

/// Of both signs: the side with the largest weight has eight steps, the other
/// seven. Less than the largest clips it, for finer steps of the others. A lane
/// is a candidate, so that there is nothing to add up across lanes.
template <typename Processor>
TESSERA_INLINE float scaleOf4Bits(std::span<const float> weights,
                                  float largest) {
  const Floats shares{1 - 0.05f * 0, 1 - 0.05f * 1, 1 - 0.05f * 2,
                      1 - 0.05f * 3, 1 - 0.05f * 4, 1 - 0.05f * 5,
                      1 - 0.05f * 6, 1 - 0.05f * 7};
  Floats scales = largest / -8 * shares;
  Processor::round(scales);
  const Floats inverses = scales == 0 ? Floats{} : 1 / scales;
  Floats errors[2]{}; // Σ (w - scale × q)², q as it will be
  for (std::size_t i = 0; i < weights.size(); i += 2)
    for (std::size_t k = 0; k < 2; ++k) {
      Floats w, q;
      fill(w, weights[i + k]);
      q = w;
      quantize<Processor>(q, inverses, kRange4);
      const Floats difference = w - q * scales;
      errors[k] += difference * difference;
    }
  const Floats all = errors[0] + errors[1];
  std::size_t best = 0;
  for (std::size_t lane = 1; lane < kLanes; ++lane)
    if (all[lane] < all[best])
      best = lane;
  return scales[best];
}

template <typename Processor>
TESSERA_INLINE uint16_t body(int64_t bits, std::span<const float> weights,
                             std::span<int8_t> q) {
  const float largest = largestOf(weights);
  const float scale = bits == 8 ? scaleOf8Bits(std::fabs(largest))
                                : scaleOf4Bits<Processor>(weights, largest);
  const Range range = bits == 8 ? kRange8 : kRange4;
  Floats inverse;
  fill(inverse, scale == 0 ? 0 : 1 / scale);
  for (std::size_t i = 0; i < weights.size(); i += kLanes) {
    Floats w;
    load(w, weights.data() + i);
    quantize<Processor>(w, inverse, range);
    const Bytes bytes =
        __builtin_convertvector(__builtin_convertvector(w, Words), Bytes);
    std::memcpy(q.data() + i, &bytes, sizeof bytes);
  }
  return floatToF16(scale);
}

#if defined(__x86_64__)
struct Avx2 {
  [[gnu::target("avx2,f16c")]] static void clamp(Floats &x, const Floats &least,
                                                 const Floats &most) {
    x = Floats(
        _mm256_min_ps(_mm256_max_ps(__m256(x), __m256(least)), __m256(most)));
  }
  [[gnu::target("avx2,f16c")]] static void round(Floats &scales) {
    scales = Floats(_mm256_cvtph_ps(
        _mm256_cvtps_ph(__m256(scales), _MM_FROUND_TO_NEAREST_INT)));
  }
};

[[gnu::target("avx2,f16c")]] uint16_t
withAvx2(int64_t bits, std::span<const float> weights, std::span<int8_t> q) {
  return body<Avx2>(bits, weights, q);
}
#else
constexpr auto withAvx2 = quantizeGroupAnywhere;
#endif

} // namespace

uint16_t quantizeGroupAnywhere(int64_t bits, std::span<const float> weights,
                               std::span<int8_t> q) {
  return body<AnyProcessor>(bits, weights, q);
}

uint16_t quantizeGroup(int64_t bits, std::span<const float> weights,
                       std::span<int8_t> q) {
  static const auto chosen = [] {
    const CpuFeatures cpu = CpuFeatures::detect();
    return cpu.has("avx2") && cpu.has("f16c") ? withAvx2
                                              : quantizeGroupAnywhere;
  }();
  return chosen(bits, weights, q);
}

} // namespace tessera
