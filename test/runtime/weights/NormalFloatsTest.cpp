// NF4 against numbers that bitsandbytes 0.50 gives on a CPU (quantize_4bit with
// quant_type nf4 and compress_statistics) for weights that are easy to make.
#include "runtime/weights/NormalFloats.h"
#include "runtime/support/NormalFloat.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

using namespace tessera;

namespace {

constexpr int64_t kRows = 32, kColumns = 448;

/// Exact in f32, of different sizes in each block.
float weightAt(int64_t n, int64_t k) {
  const int64_t i = n * kColumns + k;
  return float((i * 7919 % 4001) - 2000) * float(1 + i / 64 % 13) / 4096.0f;
}

struct Matrix {
  QuantizedLayout layout{.rows = kRows,
                         .columns = kColumns,
                         .bits = 4,
                         .group = QuantizedLayout::kNf4Group,
                         .floats = true};
  std::vector<float> weights;
  std::vector<uint32_t> words; ///< row by row
  NestedAbsmax nested;
  std::vector<uint32_t> values, scales; ///< micropanels

  Matrix() {
    for (int64_t n = 0; n < kRows; ++n)
      for (int64_t k = 0; k < kColumns; ++k)
        weights.push_back(weightAt(n, k));
    const int64_t groups = layout.groups(), perRow = layout.words();
    nested.absmax.resize(kRows * groups);
    values.resize(kRows * perRow);
    scales.resize(kRows * layout.scaleRows());
    for (int64_t n = 0; n < kRows; ++n)
      EXPECT_TRUE(findAbsmax(row(n), absmaxOf(n)));
    quantizeAbsmax(nested);
    for (int64_t n = 0; n < kRows; ++n) {
      std::vector<uint32_t> ofRow(perRow), ofScales(layout.scaleRows());
      quantizeNormalFloats(row(n), absmaxOf(n), ofRow);
      storeAbsmax(layout, nested, n, ofScales);
      words.insert(words.end(), ofRow.begin(), ofRow.end());
      for (int64_t i = 0; i < perRow; ++i)
        values[(n / 16 * perRow + i) * 16 + n % 16] = ofRow[i];
      for (int64_t i = 0; i < layout.scaleRows(); ++i)
        scales[(n / 16 * layout.scaleRows() + i) * 16 + n % 16] = ofScales[i];
    }
  }
  std::span<const float> row(int64_t n) const {
    return std::span(weights).subspan(n * kColumns, kColumns);
  }
  std::span<float> absmaxOf(int64_t n) {
    return std::span(nested.absmax)
        .subspan(n * layout.groups(), layout.groups());
  }
};

/// FNV-1a over bytes.
uint64_t hashOf(auto bytes) {
  uint64_t hash = 14695981039346656037u;
  for (auto byte : bytes)
    hash = (hash ^ uint8_t(byte)) * 1099511628211u;
  return hash;
}

} // namespace

TEST(NormalFloats, HaveTheCodesOfBitsandbytes) {
  Matrix matrix;
  std::vector<uint8_t> codes;
  for (uint32_t word : matrix.words)
    for (int i = 0; i < 8; ++i)
      codes.push_back(word >> 4 * i & 15);
  EXPECT_EQ(hashOf(codes), 13065530152238660438u);
  EXPECT_EQ(hashOf(matrix.nested.codes), 9378338117674721760u);
  EXPECT_FLOAT_EQ(matrix.nested.offset, 3.354990243911743f);
  EXPECT_FLOAT_EQ(matrix.nested.absmax2.front(), 2.989492177963257f);
}

TEST(NormalFloats, AreDequantizedFromTheirLanes) {
  Matrix matrix;
  const std::vector<float> found =
      dequantizeNormalFloats(matrix.layout, matrix.values, matrix.scales);
  for (int64_t n = 0; n < kRows; ++n)
    for (int64_t k = 0; k < kColumns; ++k) {
      const int64_t at = n * matrix.layout.groups() + k / 64;
      const float absmax = dynamicFloat(matrix.nested.codes[at]) *
                               matrix.nested.absmax2[at / 256] +
                           matrix.nested.offset;
      const uint32_t word = matrix.words[(n * kColumns + k) / 8];
      ASSERT_EQ(found[n * kColumns + k],
                kNormalFloats[word >> k % 8 * 4 & 15] * absmax)
          << n << " " << k;
    }
}

TEST(NormalFloats, KeepZerosAndRefuseNan) {
  std::vector<float> zeros(64, 0.0f), absmax(1);
  std::vector<uint32_t> words(8);
  EXPECT_TRUE(findAbsmax(zeros, absmax));
  quantizeNormalFloats(zeros, absmax, words);
  for (uint32_t word : words)
    EXPECT_EQ(word, 0x77777777u);
  zeros[9] = NAN;
  EXPECT_FALSE(findAbsmax(zeros, absmax));
}

// The definition of create_dynamic_map, in double.
TEST(NormalFloats, HaveTheNumbersOfTheDynamicMap) {
  std::vector<double> numbers = {0, 1};
  for (int i = 0; i < 7; ++i)
    for (int j = 0; j < 1 << i; ++j)
      for (int sign : {1, -1})
        numbers.push_back(sign * std::pow(10.0, i - 6) *
                          (0.1 + 0.9 * (j + 0.5) / (1 << i)));
  std::ranges::sort(numbers);
  ASSERT_EQ(numbers.size(), 256u);
  for (int i = 0; i < 256; ++i)
    EXPECT_NEAR(dynamicFloat(uint8_t(i)), numbers[i],
                2e-7 * std::fabs(numbers[i]));
}
