#include "runtime/weights/QuantizeGroup.h"
#include "runtime/weights/QuantizeLanes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// The file is compiled without fused multiply-adds, which round differently.

namespace tessera {
namespace {

/// The integers of a group are within [least, most].
struct Range {
  float least, most;
};
constexpr Range kRange8{-127, 127}, kRange4{-8, 7};
/// With zero points, -128 is of use.
constexpr Range kWhole8{-128, 127};
/// 1.5 × 2^23: a sum with it has no fraction, so it rounds to the nearest
/// integer, half to even, what is less than 2^22.
constexpr float kShift = 12582912;

TESSERA_INLINE void fill(Floats &to, float x) {
  to = Floats{x, x, x, x, x, x, x, x};
}

/// Integers, clamped. The inverse of a scale of 0 is 0, and with it all
/// weights.
template <typename Processor>
TESSERA_INLINE void quantize(Floats &x, const Floats &inverse,
                             const Floats &least, const Floats &most) {
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

/// The first weight with that magnitude.
template <typename Processor>
TESSERA_INLINE float firstOf(std::span<const float> weights, float magnitude) {
  constexpr std::size_t kAtOnce = 32 / kLanes; // the bits of a mask
  for (std::size_t i = 0; i < weights.size(); i += kAtOnce * kLanes) {
    uint32_t found = 0;
    for (std::size_t k = 0; k < kAtOnce; ++k) {
      Words w;
      load(w, weights.data() + i + k * kLanes);
      found |= Processor::equals(Floats(w & kMagnitude), magnitude)
               << k * kLanes;
    }
    if (found)
      return weights[i + std::countr_zero(found)];
  }
  return 0;
}

/// Of candidates for a scale of 4 bits: less than the largest weight clips it,
/// for finer steps of the others.
const Floats kShares{1 - 0.05f * 0, 1 - 0.05f * 1, 1 - 0.05f * 2,
                     1 - 0.05f * 3, 1 - 0.05f * 4, 1 - 0.05f * 5,
                     1 - 0.05f * 6, 1 - 0.05f * 7};

/// Of both signs: the side with the largest weight has eight steps, the other
/// seven. Less than the largest clips it, for finer steps of the others. A lane
/// is a candidate, so that there is nothing to add up across lanes. Step by
/// step for all groups, of which none waits for what came of another.
template <typename Processor>
TESSERA_INLINE void scalesOf4Bits(const Groups &groups,
                                  std::span<const float> largest,
                                  std::span<uint16_t> scales) {
  Floats finite;
  fill(finite, std::numeric_limits<float>::max());
  Floats candidates[kMostGroups], inverses[kMostGroups], errors[kMostGroups];
  for (std::size_t i = 0; i < scales.size(); ++i) {
    candidates[i] = firstOf<Processor>(groups[i], largest[i]) / -8 * kShares;
    Processor::round(candidates[i]);
    inverses[i] = 1 / candidates[i];
    Processor::clamp(inverses[i], -finite,
                     finite); // of 0: no q has another error
  }
  for (std::size_t i = 0; i < scales.size(); ++i)
    Processor::errors4(groups[i], candidates[i], inverses[i], errors[i]);
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const auto least = std::bit_cast<float>(-greatest(-Words(errors[i])));
    scales[i] = Processor::toHalf(
        candidates[i][std::countr_zero(Processor::equals(errors[i], least))]);
  }
}

template <typename Processor>
TESSERA_INLINE void round(std::span<const float> weights, float scale,
                          Range range, int8_t *q) {
  Floats inverse;
  fill(inverse, scale == 0 ? 0 : 1 / scale);
  for (std::size_t i = 0; i < weights.size(); i += kLanes) {
    Floats w;
    load(w, weights.data() + i);
    quantize<Processor>(w, inverse, range);
    const Bytes bytes =
        __builtin_convertvector(__builtin_convertvector(w, Words), Bytes);
    std::memcpy(q + i, &bytes, sizeof bytes);
  }
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

/// Candidate scales of a group, one for each lane, and the integer that the
/// least weight becomes (`lowest`).
struct Candidates {
  Floats scales, inverses, lowest;
};

template <typename Processor>
TESSERA_INLINE void findCandidates(Candidates &to, int64_t bits, Range ends) {
  const float steps = bits == 8 ? 255 : 15;
  const float widest = (ends.most - ends.least) / steps;
  if (bits == 8) {
    fill(to.scales, Processor::toFloat(roundedUp<Processor>(widest)));
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

/// Weights are scale × (q - zero); both are the bits of f16.
template <typename Processor>
TESSERA_INLINE void quantizeWithZero(int64_t bits,
                                     std::span<const float> weights, int8_t *q,
                                     uint16_t &scale, uint16_t &zero) {
  const Range range = bits == 8 ? kWhole8 : kRange4;
  const float steps = range.most - range.least;
  Candidates candidates;
  findCandidates<Processor>(candidates, bits, endsOf(weights));
  const std::size_t best =
      bits == 8 ? 0 : bestOf<Processor>(candidates, steps, weights);
  const float lowest = candidates.lowest[best], shift = range.least - lowest;
  Floats inverse;
  fill(inverse, candidates.inverses[best]);
  for (std::size_t i = 0; i < weights.size(); i += kLanes) {
    Floats w;
    load(w, weights.data() + i);
    quantize<Processor>(w, inverse, {lowest, lowest + steps});
    w += shift;
    const Bytes bytes =
        __builtin_convertvector(__builtin_convertvector(w, Words), Bytes);
    std::memcpy(q + i, &bytes, sizeof bytes);
  }
  scale = Processor::toHalf(candidates.scales[best]);
  zero = Processor::toHalf(shift);
}

template <typename Processor>
TESSERA_INLINE bool body(int64_t bits, std::size_t group,
                         std::span<const float> weights, std::span<int8_t> q,
                         std::span<uint16_t> scales,
                         std::span<uint16_t> zeros) {
  const Groups groups{weights, group};
  float largest[kMostGroups];
  bool reached = true;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    largest[i] = std::bit_cast<float>(largestBits(groups[i]));
    reached &= largest[i] <= largestWeight(bits, !zeros.empty());
  }
  if (!reached)
    return false;
  if (!zeros.empty()) {
    for (std::size_t i = 0; i < scales.size(); ++i)
      quantizeWithZero<Processor>(bits, groups[i], q.data() + i * group,
                                  scales[i], zeros[i]);
    return true;
  }
  if (bits == 4)
    scalesOf4Bits<Processor>(groups, largest, scales);
  else
    for (std::size_t i = 0; i < scales.size(); ++i)
      scales[i] = roundedUp<Processor>(largest[i] / kRange8.most);
  for (std::size_t i = 0; i < scales.size(); ++i)
    round<Processor>(groups[i], Processor::toFloat(scales[i]),
                     bits == 8 ? kRange8 : kRange4, q.data() + i * group);
  return true;
}

/// Σ (w - scale × q)² of each scale, q as it will be: the sum of weights with
/// even numbers, and that of odd ones.
template <typename Processor>
TESSERA_INLINE void sumErrors(std::span<const float> weights,
                              const Floats &scales, const Floats &inverses,
                              Floats &errors) {
  Floats sums[2]{};
  for (std::size_t i = 0; i < weights.size(); i += 2)
    for (std::size_t k = 0; k < 2; ++k) {
      Floats w, q;
      fill(w, weights[i + k]);
      q = w;
      quantize<Processor>(q, inverses, kRange4);
      const Floats difference = w - q * scales;
      sums[k] += difference * difference;
    }
  errors = sums[0] + sums[1];
}

/// What each processor has its own instructions for.
struct AnyProcessor : AnyHalf {
  TESSERA_INLINE static void clamp(Floats &x, const Floats &least,
                                   const Floats &most) {
    x = x > least ? x : least;
    x = x < most ? x : most;
  }
  /// A bit for each lane.
  TESSERA_INLINE static uint32_t equals(const Floats &x, float y) {
    uint32_t bits = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      bits |= uint32_t(x[lane] == y) << lane;
    return bits;
  }
  /// As f16 holds them.
  TESSERA_INLINE static void round(Floats &scales) {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      scales[lane] = f16ToFloat(floatToF16(scales[lane]));
  }
  TESSERA_INLINE static void errors4(std::span<const float> weights,
                                     const Floats &scales,
                                     const Floats &inverses, Floats &errors) {
    sumErrors<AnyProcessor>(weights, scales, inverses, errors);
  }
};

#if defined(__x86_64__)
#define TESSERA_AVX2 [[gnu::target("avx2,f16c")]] static inline
#define TESSERA_AVX512                                                         \
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,f16c")]] static inline

struct Avx2 {
  TESSERA_AVX2 void clamp(Floats &x, const Floats &least, const Floats &most) {
    x = Floats(
        _mm256_min_ps(_mm256_max_ps(__m256(x), __m256(least)), __m256(most)));
  }
  TESSERA_AVX2 uint16_t toHalf(float x) {
    return uint16_t(_mm_extract_epi16(
        _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0));
  }
  TESSERA_AVX2 float toFloat(uint16_t x) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(x)));
  }
  TESSERA_AVX2 uint32_t equals(const Floats &x, float y) {
    return uint32_t(_mm256_movemask_ps(
        _mm256_cmp_ps(__m256(x), _mm256_set1_ps(y), _CMP_EQ_OQ)));
  }
  TESSERA_AVX2 void round(Floats &scales) {
    scales = Floats(_mm256_cvtph_ps(
        _mm256_cvtps_ph(__m256(scales), _MM_FROUND_TO_NEAREST_INT)));
  }
  TESSERA_INLINE static void errors4(std::span<const float> weights,
                                     const Floats &scales,
                                     const Floats &inverses, Floats &errors) {
    sumErrors<Avx2>(weights, scales, inverses, errors);
  }
};

struct Avx512 : Avx2 {
  /// Lane 2 c has candidate c and even weights, lane 2 c + 1 odd ones.
  TESSERA_AVX512 void errors4(std::span<const float> weights,
                              const Floats &scales, const Floats &inverses,
                              Floats &errors) {
    const __m512i twice =
        _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512 scale = _mm512_permutexvar_ps(
                     twice, _mm512_castps256_ps512(__m256(scales))),
                 inverse = _mm512_permutexvar_ps(
                     twice, _mm512_castps256_ps512(__m256(inverses))),
                 shift = _mm512_set1_ps(kShift),
                 least = _mm512_set1_ps(kShift + kRange4.least),
                 most = _mm512_set1_ps(kShift + kRange4.most);
    __m512 sums = _mm512_setzero_ps();
    for (std::size_t i = 0; i < weights.size(); i += 2) {
      double pair;
      std::memcpy(&pair, weights.data() + i, sizeof pair);
      const __m512 w = _mm512_castpd_ps(_mm512_set1_pd(pair));
      __m512 q = _mm512_add_ps(_mm512_mul_ps(w, inverse), shift);
      q = _mm512_min_ps(_mm512_max_ps(q, least), most);
      q = _mm512_sub_ps(q, shift);
      const __m512 difference = _mm512_sub_ps(w, _mm512_mul_ps(q, scale));
      sums = _mm512_add_ps(sums, _mm512_mul_ps(difference, difference));
    }
    const __m512 odd =
        _mm512_castsi512_ps(_mm512_srli_epi64(_mm512_castps_si512(sums), 32));
    const __m512 both = _mm512_add_ps(sums, odd); // of even lanes
    errors = Floats(_mm512_castps512_ps256(_mm512_permutexvar_ps(
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14),
        both)));
  }
};

[[gnu::target("avx2,f16c")]] bool withAvx2(int64_t bits, std::size_t group,
                                           std::span<const float> weights,
                                           std::span<int8_t> q,
                                           std::span<uint16_t> scales,
                                           std::span<uint16_t> zeros) {
  return body<Avx2>(bits, group, weights, q, scales, zeros);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,f16c")]] bool
withAvx512(int64_t bits, std::size_t group, std::span<const float> weights,
           std::span<int8_t> q, std::span<uint16_t> scales,
           std::span<uint16_t> zeros) {
  return body<Avx512>(bits, group, weights, q, scales, zeros);
}
#endif

} // namespace

QuantizeGroups quantizeGroupsFor(const CpuFeatures &cpu) {
#if defined(__x86_64__)
  auto hasAll = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::all_of(names, [&](auto each) { return cpu.has(each); });
  };
  if (hasAll({"avx512f", "avx512bw", "avx512dq", "avx512vl", "f16c"}))
    return withAvx512;
  if (hasAll({"avx2", "f16c"}))
    return withAvx2;
#endif
  return body<AnyProcessor>;
}

} // namespace tessera
