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
/// With zero points, -128 is of use.
constexpr Range kWhole8{-128, 127};

TESSERA_INLINE void load(Floats &to, const float *from) {
  std::memcpy(&to, from, sizeof to);
}

TESSERA_INLINE void fill(Floats &to, float x) {
  to = Floats{x, x, x, x, x, x, x, x};
}

/// To the nearest integers, half to even, of less than 2^22; clamped. The
/// inverse of a scale of 0 is 0, and with it all weights.
template <typename Processor>
TESSERA_INLINE void quantize(Floats &x, const Floats &inverse,
                             const Floats &least, const Floats &most) {
  constexpr float kShift = 12582912; // 1.5 × 2^23: no fraction is left
  x = (x * inverse + kShift) - kShift;
  Processor::clamp(x, least, most);
}

template <typename Processor>
TESSERA_INLINE void quantize(Floats &x, const Floats &inverse, Range range) {
  Floats least, most;
  fill(least, range.least);
  fill(most, range.most);
  quantize<Processor>(x, inverse, least, most);
}

/// The least and the largest of the weights and 0.
TESSERA_INLINE Range endsOf(std::span<const float> weights) {
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
  return {low, high};
}

/// The first weight that is largest by magnitude.
TESSERA_INLINE float largestOf(std::span<const float> weights) {
  const auto [low, high] = endsOf(weights);
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

/// As f16, for a scale at which no weight shall clip. Of subnormal scales f16
/// has but a few digits: up, so that none clips and no scale of weights is 0.
float roundedUp(float wanted) {
  uint16_t half = floatToF16(wanted);
  if (half < 0x400 && f16ToFloat(half) < wanted)
    ++half;
  return f16ToFloat(half);
}

/// Of candidates for a scale of 4 bits: less than the largest weight clips it,
/// for finer steps of the others.
const Floats kShares{1 - 0.05f * 0, 1 - 0.05f * 1, 1 - 0.05f * 2,
                     1 - 0.05f * 3, 1 - 0.05f * 4, 1 - 0.05f * 5,
                     1 - 0.05f * 6, 1 - 0.05f * 7};

/// Of both signs: the side with the largest weight has eight steps, the other
/// seven. Less than the largest clips it, for finer steps of the others. A lane
/// is a candidate, so that there is nothing to add up across lanes.
template <typename Processor>
TESSERA_INLINE float scaleOf4Bits(std::span<const float> weights,
                                  float largest) {
  Floats scales = largest / -8 * kShares;
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
  const float scale = bits == 8 ? roundedUp(std::fabs(largest) / kRange8.most)
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

/// Scales of a group, and what `least` stands for, as an integer: with them
/// weights become integers from `lowest` on. A lane is a candidate.
struct Candidates {
  Floats scales, inverses, lowest;
};

template <typename Processor>
TESSERA_INLINE void findCandidates(Candidates &to, int64_t bits, Range ends) {
  const float steps = bits == 8 ? 255 : 15;
  const float widest = (ends.most - ends.least) / steps;
  if (bits == 8) {
    fill(to.scales, roundedUp(widest));
    fill(to.lowest, ends.least);
  } else {
    to.scales = widest * kShares;
    Processor::round(to.scales);
    to.lowest = ends.least * kShares;
  }
  to.inverses = to.scales == 0 ? Floats{} : 1 / to.scales;
  quantize<Processor>(to.lowest, to.inverses, {-steps, 0});
}

/// The candidate with the least squared error.
template <typename Processor>
TESSERA_INLINE std::size_t bestOf(const Candidates &from, float steps,
                                  std::span<const float> weights) {
  const Floats highest = from.lowest + steps;
  Floats errors{};
  for (float weight : weights) {
    Floats w, q;
    fill(w, weight);
    q = w;
    quantize<Processor>(q, from.inverses, from.lowest, highest);
    const Floats difference = w - q * from.scales;
    errors += difference * difference;
  }
  std::size_t best = 0;
  for (std::size_t lane = 1; lane < kLanes; ++lane)
    if (errors[lane] < errors[best])
      best = lane;
  return best;
}

template <typename Processor>
TESSERA_INLINE ScaleAndZero bodyWithZero(int64_t bits,
                                         std::span<const float> weights,
                                         std::span<int8_t> q) {
  const Range range = bits == 8 ? kWhole8 : kRange4;
  const float steps = range.most - range.least;
  Candidates candidates;
  findCandidates<Processor>(candidates, bits, endsOf(weights));
  const std::size_t best =
      bits == 8 ? 0 : bestOf<Processor>(candidates, steps, weights);
  const float lowest = candidates.lowest[best], zero = range.least - lowest;
  Floats inverse;
  fill(inverse, candidates.inverses[best]);
  for (std::size_t i = 0; i < weights.size(); i += kLanes) {
    Floats w;
    load(w, weights.data() + i);
    quantize<Processor>(w, inverse, {lowest, lowest + steps});
    w += zero;
    const Bytes bytes =
        __builtin_convertvector(__builtin_convertvector(w, Words), Bytes);
    std::memcpy(q.data() + i, &bytes, sizeof bytes);
  }
  return {floatToF16(candidates.scales[best]), floatToF16(zero)};
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

[[gnu::target("avx2,f16c")]] ScaleAndZero
zeroWithAvx2(int64_t bits, std::span<const float> weights,
             std::span<int8_t> q) {
  return bodyWithZero<Avx2>(bits, weights, q);
}
#else
constexpr auto withAvx2 = quantizeGroupAnywhere;
constexpr auto zeroWithAvx2 = quantizeGroupWithZeroAnywhere;
#endif

bool hasAvx2() {
  static const bool has = [] {
    const CpuFeatures cpu = CpuFeatures::detect();
    return cpu.has("avx2") && cpu.has("f16c");
  }();
  return has;
}

} // namespace

uint16_t quantizeGroupAnywhere(int64_t bits, std::span<const float> weights,
                               std::span<int8_t> q) {
  return body<AnyProcessor>(bits, weights, q);
}

uint16_t quantizeGroup(int64_t bits, std::span<const float> weights,
                       std::span<int8_t> q) {
  return hasAvx2() ? withAvx2(bits, weights, q)
                   : quantizeGroupAnywhere(bits, weights, q);
}

ScaleAndZero quantizeGroupWithZeroAnywhere(int64_t bits,
                                           std::span<const float> weights,
                                           std::span<int8_t> q) {
  return bodyWithZero<AnyProcessor>(bits, weights, q);
}

ScaleAndZero quantizeGroupWithZero(int64_t bits, std::span<const float> weights,
                                   std::span<int8_t> q) {
  return hasAvx2() ? zeroWithAvx2(bits, weights, q)
                   : quantizeGroupWithZeroAnywhere(bits, weights, q);
}

} // namespace tessera
