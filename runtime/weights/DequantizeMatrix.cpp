#include "runtime/weights/DequantizeMatrix.h"
#include "runtime/support/Floats.h"
#include "runtime/support/Mxfp4.h"
#include "runtime/support/SuperBlocks.h"
#include "runtime/weights/NormalFloats.h"

#include <cstdint>
#include <cstring>

namespace tessera {
namespace {

template <typename Word>
std::vector<Word> wordsOf(std::span<const std::byte> bytes) {
  std::vector<Word> words(bytes.size() / sizeof(Word));
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(Word));
  return words;
}

float codeAt(const QuantizedLayout &layout, uint32_t word, int64_t k) {
  const uint32_t bits = word >> (k % layout.perWord() * layout.bits);
  if (layout.bits == 16)
    return bf16ToFloat(uint16_t(bits));
  if (layout.mxfp4())
    return kMxfp4Numbers[bits & 15];
  if (layout.floats)
    return e4m3ToFloat(uint8_t(bits));
  return layout.bits == 8 ? float(int8_t(bits))
                          : float(int32_t(bits & 15) - layout.offset());
}

std::vector<float> dequantizeSuperBlocks(const QuantizedLayout &layout,
                                         const std::vector<uint32_t> &words,
                                         const std::vector<uint32_t> &scales) {
  std::vector<float> matrix;
  matrix.reserve(layout.rows * layout.columns);
  for (int64_t n = 0; n < layout.rows; ++n) {
    // Of the row, in an array whose micropanels have `count` of them.
    auto reader = [&](const std::vector<uint32_t> &from, int64_t count) {
      return [&from, first = n / kMicropanel * count * kMicropanel +
                             n % kMicropanel](int64_t i) {
        return from[first + i * kMicropanel];
      };
    };
    const auto wordAt = reader(words, layout.words()),
               scaleAt = reader(scales, layout.scaleRows());
    for (int64_t k = 0; k < layout.columns; ++k)
      matrix.push_back(superBlockWeight(layout, k, wordAt, scaleAt));
  }
  return matrix;
}

std::vector<float> dequantizeRows(const QuantizedLayout &layout,
                                  std::span<const std::byte> values,
                                  std::span<const std::byte> scales) {
  const auto words = wordsOf<uint32_t>(values);
  if (layout.nf4())
    return dequantizeNormalFloats(layout, words, wordsOf<uint32_t>(scales));
  if (layout.superBlocks)
    return dequantizeSuperBlocks(layout, words, wordsOf<uint32_t>(scales));
  const auto factors = wordsOf<uint16_t>(scales);
  const auto exponents = wordsOf<uint32_t>(scales);
  std::vector<float> matrix(layout.rows * layout.columns);
  for (int64_t n = 0; n < layout.rows; ++n) {
    const int64_t micropanel = n / kMicropanel, lane = n % kMicropanel;
    auto factorAt = [&](int64_t i) {
      return f16ToFloat(
          factors[(micropanel * layout.scaleRows() + i) * kMicropanel + lane]);
    };
    float scale = 1, zero = 0;
    for (int64_t k = 0; k < layout.columns; ++k) {
      if (layout.mxfp4() && k % layout.group == 0) {
        const int64_t group = k / layout.group;
        scale = mxfp4Scale(mxfp4Exponent(
            exponents[(micropanel * layout.scaleRows() + group / 4) *
                          kMicropanel +
                      lane],
            group));
      } else if (layout.hasScales() && k % layout.group == 0) {
        const int64_t at = layout.scalesAt(k / layout.group);
        scale = factorAt(at);
        zero = layout.zeros ? factorAt(at + 1) : 0;
      }
      const uint32_t word =
          words[(micropanel * layout.words() + k / layout.perWord()) *
                    kMicropanel +
                lane];
      matrix[n * layout.columns + k] = (codeAt(layout, word, k) - zero) * scale;
    }
  }
  return matrix;
}

} // namespace

std::vector<float> dequantizeMatrix(const QuantizedLayout &layout,
                                    std::span<const std::byte> values,
                                    std::span<const std::byte> scales,
                                    bool transposed) {
  std::vector<float> matrix = dequantizeRows(layout, values, scales);
  if (!transposed)
    return matrix;
  std::vector<float> result(matrix.size());
  for (int64_t n = 0; n < layout.rows; ++n)
    for (int64_t k = 0; k < layout.columns; ++k)
      result[k * layout.rows + n] = matrix[n * layout.columns + k];
  return result;
}

} // namespace tessera
