// The arithmetic of quantization, in vectors: groups of weights.
#pragma once
#include "runtime/support/CpuFeatures.h"
#include "runtime/support/Floats.h"

#include <cstdint>
#include <span>

namespace tessera {

/// Groups that are quantized at once, at most.
constexpr std::size_t kMostGroups = 16;

/// Quantizes consecutive groups, as many as `scales` has, to integers `q` of 8
/// or 4 bits. Writes the bits of their scales as f16 (see quantizeMicropanel in
/// QuantizeTensor.h) and, if `zeros` has as many elements, of their zero
/// points. `group` is a multiple of 32, and so is the last one, which may be
/// shorter; zeros at its end change nothing. Returns false if a weight is not
/// finite or beyond largestWeight.
using QuantizeGroups = bool (*)(int64_t bits, std::size_t group,
                                std::span<const float> weights,
                                std::span<int8_t> q, std::span<uint16_t> scales,
                                std::span<uint16_t> zeros);

/// What the largest scale reaches. With zero points both signs share the steps.
constexpr float largestWeight(int64_t bits, bool zeros, bool floats = false) {
  return 65504.0f * (floats      ? kLargestE4m3
                     : bits == 8 ? 127
                     : zeros     ? 7.5f
                                 : 8);
}

/// The fastest that the processor has; all give the same.
QuantizeGroups quantizeGroupsFor(const CpuFeatures &cpu);
/// The same of e4m3, whose bits `q` are then; there are no `zeros`, and `bits`
/// are 8.
QuantizeGroups quantizeFloatsFor(const CpuFeatures &cpu);

} // namespace tessera
