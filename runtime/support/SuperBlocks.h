// Weights of super-blocks, llama.cpp's K-quants, in the layout of
// QuantizedLayout.h: where the bits of each are, and what it is.
#pragma once
#include "runtime/support/Floats.h"
#include "runtime/support/QuantizedLayout.h"

namespace tessera {

/// Words of a block of 32 columns that hold the lowest four bits of each q.
inline constexpr int64_t kLowWords = 4;

/// Where the upper bits of a q are: a word of the block, and the lowest of
/// their bits.
struct UpperBits {
  int64_t word, bit;
};

/// Of column k of a block, with 5 or 6 bits. Byte b of the words has those of
/// columns 8 i + 2 b and 8 i + 2 b + 1, in the order of i. So one shift brings
/// the upper bits of four columns above their lowest four, which a word has in
/// the lower (upper) halves of its bytes: columns 8 i, 8 i + 2, … (8 i + 1, …).
constexpr UpperBits upperBitsAt(int64_t bits, int64_t k) {
  const int64_t width = bits - 4, perByte = 8 / width, i = k / 8,
                at = 2 * i + k % 2;
  return {kLowWords + at / perByte, k % 8 / 2 * 8 + at % perByte * width};
}

/// The q of column k as it is kept, unsigned. wordAt(i): word i of the row.
template <typename WordAt>
uint32_t superBlockInteger(const QuantizedLayout &layout, int64_t k,
                           const WordAt &wordAt) {
  const int64_t block = k / kQuantBlock * layout.bits, at = k % kQuantBlock;
  uint32_t q = uint32_t(wordAt(block + at / 8)) >> (at % 8 * 4) & 15;
  if (layout.bits == 4)
    return q;
  const UpperBits upper = upperBitsAt(layout.bits, at);
  const uint32_t mask = (1u << (layout.bits - 4)) - 1;
  return q | (uint32_t(wordAt(block + upper.word)) >> upper.bit & mask) << 4;
}

/// The weight of column k, in f32 as ggml's dequantize_row_q4_K, q5_K and q6_K
/// compute it, to the last bit. scaleAt(i): word i of the row's scales.
template <typename WordAt, typename ScaleAt>
float superBlockWeight(const QuantizedLayout &layout, int64_t k,
                       const WordAt &wordAt, const ScaleAt &scaleAt) {
  const int64_t first = layout.scalesAt(k / QuantizedLayout::kSuperBlock),
                part = k % QuantizedLayout::kSuperBlock / layout.scaleColumns();
  auto byteAt = [&](int64_t i) {
    return uint8_t(uint32_t(scaleAt(first + 1 + i / 4)) >> (i % 4 * 8));
  };
  const auto factors = uint32_t(scaleAt(first));
  const float d = f16ToFloat(uint16_t(factors));
  const uint32_t q = superBlockInteger(layout, k, wordAt);
  if (!layout.minima()) {
    const float step = d * float(int8_t(byteAt(part)));
    return step * float(int32_t(q) - int32_t(layout.offset()));
  }
  const float step = d * float(byteAt(part)),
              least =
                  f16ToFloat(uint16_t(factors >> 16)) * float(byteAt(8 + part));
  return step * float(q) - least;
}

} // namespace tessera
