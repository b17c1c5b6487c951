// Shared by the quantization to integers (QuantizeGroup.cpp) and e4m3
// (QuantizeFloats.cpp): vectors of weights, groups of them, and f16 scales.
#pragma once
#include "runtime/support/Floats.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

// Bodies are inlined into functions for one processor each.
#define TESSERA_INLINE [[gnu::always_inline]] inline

// Every file that includes this has its own, so that none is shared with one
// that was compiled for another processor.
namespace tessera {
namespace {

constexpr std::size_t kLanes = 8;
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Words __attribute__((vector_size(4 * kLanes)));
typedef int8_t Bytes __attribute__((vector_size(kLanes)));

constexpr int32_t kMagnitude = 0x7fffffff; // bits of a float without its sign

template <typename Vector, typename Element>
TESSERA_INLINE void load(Vector &to, const Element *from) {
  std::memcpy(&to, from, sizeof to);
}

TESSERA_INLINE int32_t greatest(const Words &x) {
  Words other = __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
  Words most = x > other ? x : other;
  other = __builtin_shufflevector(most, most, 2, 3, 0, 1, 6, 7, 4, 5);
  most = most > other ? most : other;
  return most[0] > most[1] ? most[0] : most[1];
}

/// Bits of the largest magnitude: those of floats without a sign are in the
/// order of the floats.
TESSERA_INLINE int32_t largestBits(std::span<const float> weights) {
  Words most{};
  for (std::size_t i = 0; i < weights.size(); i += kLanes) {
    Words w;
    load(w, weights.data() + i);
    w &= kMagnitude;
    most = most > w ? most : w;
  }
  return greatest(most);
}

/// f16 by any processor's instructions.
struct AnyHalf {
  TESSERA_INLINE static uint16_t toHalf(float x) { return floatToF16(x); }
  TESSERA_INLINE static float toFloat(uint16_t x) { return f16ToFloat(x); }
};

/// As f16, for a scale at which no weight shall clip. Of subnormal scales f16
/// has but a few digits: up, so that none clips and no scale of weights is 0.
template <typename Processor> TESSERA_INLINE uint16_t roundedUp(float wanted) {
  uint16_t half = Processor::toHalf(wanted);
  if (half < 0x400 && Processor::toFloat(half) < wanted)
    ++half;
  return half;
}

/// The groups of a run.
struct Groups {
  std::span<const float> weights;
  std::size_t size; // of each but the last

  TESSERA_INLINE std::span<const float> operator[](std::size_t i) const {
    const std::size_t begin = i * size;
    return weights.subspan(begin, std::min(size, weights.size() - begin));
  }
};

} // namespace
} // namespace tessera
