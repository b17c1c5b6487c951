// The arithmetic of quantization, in vectors: one group of weights.
#pragma once
#include <cstdint>
#include <span>

namespace tessera {

/// Weights of one group as integers `q` of 8 or 4 bits, and the bits of their
/// scale as f16, as quantizeStrip (QuantizeTensor.h) says. There are as many
/// weights as q, a multiple of 8; all of them are finite, and zeros at the end
/// change nothing. The same on every processor.
uint16_t quantizeGroup(int64_t bits, std::span<const float> weights,
                       std::span<int8_t> q);
/// What quantizeGroup is on a processor without AVX2.
uint16_t quantizeGroupAnywhere(int64_t bits, std::span<const float> weights,
                               std::span<int8_t> q);

/// The bits of both as f16.
struct ScaleAndZero {
  uint16_t scale, zero;
  bool operator==(const ScaleAndZero &) const = default;
};
/// The same with a zero point: weights are scale × (q - zero).
ScaleAndZero quantizeGroupWithZero(int64_t bits, std::span<const float> weights,
                                   std::span<int8_t> q);
ScaleAndZero quantizeGroupWithZeroAnywhere(int64_t bits,
                                           std::span<const float> weights,
                                           std::span<int8_t> q);

} // namespace tessera
