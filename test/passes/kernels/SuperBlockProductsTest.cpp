// Few rows of bf16 times weights in super-blocks: against loops that do the
// same arithmetic from its definition, to the bit; rows as bytes too. Many rows
// of floats, each the same whatever others there are.
#include "compiler/target/cpu/CpuTarget.h"
#include "hardware/Targets.h"
#include "runtime/support/Floats.h"
#include "runtime/support/QuantizedLayout.h"
#include "test/support/RunKernels.h"
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

using namespace tessera;
using namespace tessera::testing;
using interpreter::Tensor;
using interpreter::Tensors;

namespace {

/// Weights as they are defined, and the tensors that have them.
struct SuperMatrix {
  QuantizedLayout layout;
  Tensor values, scales;

  SuperMatrix(int64_t rows, int64_t columns, int64_t bits)
      : layout{rows, columns, bits, 256, false, false, true},
        values({layout.micropanels(), layout.words(), 16}),
        scales({layout.micropanels(), layout.scaleRows(), 16}) {
    std::mt19937_64 engine(bits);
    for (double &word : values.data)
      word = static_cast<int32_t>(engine());
    for (size_t i = 0; i < scales.data.size(); ++i)
      scales.data[i] = static_cast<int32_t>(
          i / 16 % 5     ? uint32_t(engine()) & (bits < 6 ? 0x3f3f3f3f : ~0u)
          : engine() % 2 ? 0x0c123456u // d and dmin, small ones too
                         : 0x80210217u);
  }
  static uint32_t at(const Tensor &of, int64_t n, int64_t i) {
    return static_cast<uint32_t>(static_cast<int64_t>(
        of.data[(n / 16 * of.shape[1] + i) * 16 + n % 16]));
  }
  int64_t q(int64_t n, int64_t k) const {
    const int64_t bits = layout.bits, first = k / 32 * bits, i = k % 32 / 8,
                  byte = k % 8 / 2, odd = k % 2;
    auto word = [&](int64_t j) { return at(values, n, first + j); };
    uint32_t q = word(i) >> (4 * (k % 8)) & 15;
    if (bits == 5)
      q |= (word(4) >> (8 * byte + 2 * i + odd) & 1) << 4;
    if (bits == 6)
      q |= (word(4 + i / 2) >> (8 * byte + 4 * (i % 2) + 2 * odd) & 3) << 4;
    return int64_t(q) - (bits == 6 ? 32 : 0);
  }
  uint8_t byte(int64_t n, int64_t super, int64_t i) const {
    return uint8_t(at(scales, n, super * 5 + 1 + i / 4) >> (i % 4 * 8));
  }
  float half(int64_t n, int64_t super, int shift) const {
    return f16ToFloat(uint16_t(at(scales, n, super * 5) >> shift));
  }

  std::string program(int64_t count) const {
    auto words = [](const Tensor &of) {
      return fmt::format("tensor<{}x{}x16xi32>", of.shape[0], of.shape[1]);
    };
    return fmt::format(
        R"(
func.func @main(%x: tensor<{0}x{1}xbf16>, %q: {2}, %s: {3}) -> tensor<{0}x{4}xf32> {{
  %w = graph.dequantize %q, %s bits {5} group 256 super_blocks : {2}, {3} -> tensor<{4}x{1}xbf16>
  %p = graph.einsum "tk,nk->tn" %x, %w : (tensor<{0}x{1}xbf16>, tensor<{4}x{1}xbf16>) -> tensor<{0}x{4}xf32>
  return %p : tensor<{0}x{4}xf32>
}})",
        count, layout.columns, words(values), words(scales), layout.rows,
        layout.bits);
  }
  Tensor multiply(const Tensor &x, const std::string &target,
                  bool byteRows = false) const {
    return llvm::cantFail(
        runMain(program(x.shape[0]), target, {x, values, scales}, byteRows));
  }
  float reference(const Tensor &x, int64_t row, int64_t n) const;
  float referenceOfBytes(const Tensor &x, int64_t row, int64_t n) const;
};

/// Magnitudes over many octaves; super-block 1 is zeros.
Tensor drawRows(int64_t rows, int64_t columns) {
  std::mt19937_64 engine(columns);
  std::normal_distribution<float> normal;
  Tensor x({rows, columns});
  for (size_t i = 0; i < x.data.size(); ++i) {
    const float value = normal(engine) * std::ldexp(1.0f, int(engine() % 12));
    x.data[i] =
        int64_t(i) % columns / 256 == 1 ? 0 : bf16ToFloat(floatToBf16(value));
  }
  return x;
}

/// Super-blocks in order, in each the parts that have a scale.
float SuperMatrix::reference(const Tensor &x, int64_t row, int64_t n) const {
  const int64_t size = layout.bits == 6 ? 16 : 32;
  float sum = 0;
  for (int64_t super = 0; super < layout.columns / 256; ++super) {
    const double *of = &x.data[row * layout.columns + super * 256];
    double largest = 0;
    for (int64_t k = 0; k < 256; ++k)
      largest = std::max(largest, std::abs(of[k]));
    const int exponent = largest > 0 ? std::ilogb(largest) : -1000;
    const double scale = std::ldexp(1.0, std::max(exponent, 14 - 127) - 13);
    float products = 0, minima = 0;
    for (int64_t part = 0; part < 256 / size; ++part) {
      int64_t dot = 0, total = 0;
      for (int64_t k = part * size; k < (part + 1) * size; ++k) {
        const auto integer = int64_t(std::nearbyint(of[k] / scale));
        dot += integer * q(n, super * 256 + k);
        total += integer;
      }
      const uint8_t bits = byte(n, super, part);
      products = std::fma(
          float(dot), size == 16 ? float(int8_t(bits)) : float(bits), products);
      if (size == 32)
        minima =
            std::fma(float(-total), float(byte(n, super, 8 + part)), minima);
    }
    float ofSuper = products * half(n, super, 0);
    if (size == 32)
      ofSuper = std::fma(minima, half(n, super, 16), ofSuper);
    sum = std::fma(ofSuper, float(scale), sum);
  }
  return sum;
}

/// A super-block of a row as bytes.
struct ByteBlock {
  float scale = 0;
  std::array<int64_t, 256> integers{};
  explicit ByteBlock(const double *x) {
    float most = 0x1p-100f;
    for (int64_t k = 0; k < 256; ++k)
      most = std::max(most, std::abs(float(x[k])));
    scale = most / 127;
    for (int64_t k = 0; k < 256; ++k)
      integers[k] = int64_t(std::nearbyint(float(x[k]) * (127 / most)));
  }
  int64_t sum(int64_t begin, int64_t count) const {
    return std::accumulate(&integers[begin], &integers[begin] + count,
                           int64_t(0));
  }
};

/// Super-blocks in order, both sums of each exact.
float SuperMatrix::referenceOfBytes(const Tensor &x, int64_t row,
                                    int64_t n) const {
  const int64_t size = layout.bits == 6 ? 16 : 32;
  float sum = 0;
  for (int64_t super = 0; super < layout.columns / 256; ++super) {
    const ByteBlock of(&x.data[row * layout.columns + super * 256]);
    int64_t products = 0, minima = 0;
    for (int64_t part = 0; part < 256 / size; ++part) {
      const uint8_t bits = byte(n, super, part);
      for (int64_t k = part * size; k < (part + 1) * size; ++k)
        products += of.integers[k] * q(n, super * 256 + k) *
                    (size == 16 ? int64_t(int8_t(bits)) : int64_t(bits));
      if (size == 32)
        minima -= of.sum(part * size, size) * byte(n, super, 8 + part);
    }
    float ofSuper = float(products) * half(n, super, 0);
    if (size == 32)
      ofSuper = std::fma(float(minima), half(n, super, 16), ofSuper);
    sum = std::fma(ofSuper, of.scale, sum);
  }
  return sum;
}

class SuperBlockProductsTest
    : public ::testing::TestWithParam<std::tuple<int64_t, std::string>> {
protected:
  void SetUp() override {
    if (std::string missing = cpu::missingFeatures(target()); !missing.empty())
      GTEST_SKIP() << "this processor lacks" << missing;
  }
  int64_t bits() const { return std::get<0>(GetParam()); }
  std::string target() const { return std::get<1>(GetParam()); }
};

TEST_P(SuperBlockProductsTest, AreThoseOfIntegersInEveryBatch) {
  const SuperMatrix matrix(83, 768, bits());
  for (int64_t rows : {1, 5, 16}) {
    const Tensor x = drawRows(rows, 768), result = matrix.multiply(x, target());
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t n = 0; n < 83; ++n)
        ASSERT_EQ(float(result.data[row * 83 + n]), matrix.reference(x, row, n))
            << "row " << row << " of " << rows << ", column " << n;
  }
}

TEST_P(SuperBlockProductsTest, WhatIsNoNumberSpoilsItsRowAlone) {
  const SuperMatrix matrix(32, 512, bits());
  Tensor x = drawRows(3, 512);
  x.data[512 + 40] = NAN;
  const Tensor result = matrix.multiply(x, target());
  for (int64_t i = 0; i < 3 * 32; ++i)
    if (i / 32 == 1)
      EXPECT_TRUE(std::isnan(result.data[i])) << "element " << i;
    else
      EXPECT_EQ(float(result.data[i]), matrix.reference(x, i / 32, i % 32));
}

class SuperBlockBytesTest : public SuperBlockProductsTest {};

TEST_P(SuperBlockBytesTest, AreThoseOfIntegersInEveryBatch) {
  const SuperMatrix matrix(83, 2304, bits());
  for (int64_t rows : {1, 5, 16, 17, 41}) {
    const Tensor x = drawRows(rows, 2304),
                 result = matrix.multiply(x, target(), /*byteRows=*/true);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t n = 0; n < 83; ++n)
        ASSERT_EQ(float(result.data[row * 83 + n]),
                  matrix.referenceOfBytes(x, row, n))
            << "row " << row << " of " << rows << ", column " << n;
  }
}

// All at the bounds of 16 and 32 bits, with both signs.
TEST_P(SuperBlockBytesTest, NoSumLeavesItsBits) {
  SuperMatrix matrix(32, 512, bits());
  for (double &word : matrix.values.data)
    word = -1;
  for (size_t i = 0; i < matrix.scales.data.size(); ++i)
    matrix.scales.data[i] = i / 16 % 5 ? (bits() < 6 ? 0x3f3f3f3f
                                          : i % 2    ? int32_t(0x80808080)
                                                     : 0x7f7f7f7f)
                                       : 0x02173c00;
  for (int64_t rows : {5, 40}) {
    Tensor x({rows, 512});
    for (size_t i = 0; i < x.data.size(); ++i)
      x.data[i] = i / 512 % 2 ? -1.0 : 1.0;
    const Tensor result = matrix.multiply(x, target(), /*byteRows=*/true);
    for (int64_t i = 0; i < rows * 32; ++i)
      ASSERT_EQ(float(result.data[i]),
                matrix.referenceOfBytes(x, i / 32, i % 32))
          << "element " << i;
  }
}

TEST_P(SuperBlockBytesTest, WhatIsNoNumberSpoilsItsRowAlone) {
  const SuperMatrix matrix(32, 512, bits());
  for (int64_t rows : {6, 20}) {
    Tensor x = drawRows(rows, 512);
    x.data[512 + 40] = NAN;
    x.data[3 * 512 + 300] = -INFINITY;
    const Tensor result = matrix.multiply(x, target(), /*byteRows=*/true);
    for (int64_t i = 0; i < rows * 32; ++i)
      if (i / 32 == 1 || i / 32 == 3)
        EXPECT_TRUE(std::isnan(result.data[i])) << "element " << i;
      else
        EXPECT_EQ(float(result.data[i]),
                  matrix.referenceOfBytes(x, i / 32, i % 32));
  }
}

class WidenedSuperBlocksTest : public SuperBlockProductsTest {};

TEST_P(WidenedSuperBlocksTest, AreTheSameInEveryBatch) {
  const SuperMatrix matrix(83, 2304, bits());
  const Tensor all = drawRows(300, 2304);
  const Tensor wanted = matrix.multiply(all, target());
  for (int64_t rows : {17, 40}) {
    Tensor x = all;
    x.shape[0] = rows;
    x.data.resize(rows * 2304);
    const Tensor result = matrix.multiply(x, target());
    for (size_t i = 0; i < result.data.size(); ++i)
      ASSERT_EQ(result.data[i], wanted.data[i])
          << "element " << i << " of " << rows << " rows";
  }
}

using SuperParam = std::tuple<int64_t, std::string>;

std::string superName(const ::testing::TestParamInfo<SuperParam> &info) {
  auto [bits, target] = info.param;
  return fmt::format("{}Bits_{}", bits, target.substr(target.find(':') + 1));
}

INSTANTIATE_TEST_SUITE_P(
    Targets, WidenedSuperBlocksTest,
    ::testing::Combine(::testing::Values(4, 5, 6),
                       ::testing::ValuesIn(cpuTargetNames())),
    superName);

INSTANTIATE_TEST_SUITE_P(
    Targets, SuperBlockBytesTest,
    ::testing::Combine(::testing::Values(4, 5, 6),
                       ::testing::ValuesIn(cpuTargetNames())),
    superName);

// Few rows take vectors on every target.
INSTANTIATE_TEST_SUITE_P(
    Targets, SuperBlockProductsTest,
    ::testing::Combine(::testing::Values(4, 5, 6),
                       ::testing::ValuesIn(cpuTargetNames())),
    superName);

} // namespace
