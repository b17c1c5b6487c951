// Few rows of bf16 times quantized weights, which are products of integers:
// against loops that do the same arithmetic from its definition, to the bit;
// many rows as bytes too.
// Many rows, which meet widened weights, and all on GPUs: each the same
// whatever others there are.
#include "compiler/target/cpu/CpuTarget.h"
#include "hardware/Targets.h"
#include "runtime/support/Floats.h"
#include "runtime/support/QuantizedLayout.h"
#include "test/support/RunKernels.h"
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

std::string programOf(const QuantizedLayout &layout, int64_t rows) {
  auto micropanels = [&](int64_t middle, const char *type) {
    return fmt::format("tensor<{}x{}x16x{}>", layout.micropanels(), middle,
                       type);
  };
  return fmt::format(
      R"(
func.func @main(%x: tensor<1x{0}x{1}xbf16>, %q: {2}, %s: {3}) -> tensor<1x{0}x{4}xf32> {{
  %w = graph.dequantize %q, %s bits {5} group {6} {7} : {2}, {3} -> tensor<{4}x{1}xbf16>
  %p = graph.einsum "btk,nk->btn" %x, %w : (tensor<1x{0}x{1}xbf16>, tensor<{4}x{1}xbf16>) -> tensor<1x{0}x{4}xf32>
  return %p : tensor<1x{0}x{4}xf32>
}})",
      rows, layout.columns, micropanels(layout.words(), "i32"),
      micropanels(layout.scaleRows(), "f16"), layout.rows, layout.bits,
      layout.group, layout.zeros ? "zeros" : "");
}

Tensor run(const QuantizedLayout &layout, const Tensors &inputs,
           const std::string &target, bool byteRows = false) {
  return llvm::cantFail(
      runMain(programOf(layout, inputs[0].shape[1]), target, inputs, byteRows));
}

/// Magnitudes over many octaves, as activations with outliers have them; a
/// group of zeros, one of numbers below all scales.
Tensors draw(const QuantizedLayout &layout, int64_t rows) {
  std::mt19937_64 engine(rows * 31 + layout.columns);
  std::normal_distribution<float> normal;
  Tensors inputs{Tensor({1, rows, layout.columns}),
                 Tensor({layout.micropanels(), layout.words(), 16}),
                 Tensor({layout.micropanels(), layout.scaleRows(), 16})};
  for (size_t i = 0; i < inputs[0].data.size(); ++i) {
    int64_t group = int64_t(i) % layout.columns / layout.group;
    float x = normal(engine) * std::ldexp(1.0f, int(engine() % 12));
    if (group == 1)
      x = 0;
    if (group == 2)
      x *= 0x1p-133f;
    inputs[0].data[i] = bf16ToFloat(floatToBf16(x));
  }
  for (double &word : inputs[1].data)
    word = static_cast<int32_t>(engine());
  for (double &scale : inputs[2].data)
    scale = (1 + double(engine() % 63)) / 1024 * (engine() % 2 ? 1 : -1);
  for (size_t i = 0; layout.zeros && i < inputs[2].data.size(); ++i)
    if (i / 16 % 2) // the ends, too
      inputs[2].data[i] = layout.bits == 4 ? double(engine() % 17) - 8
                                           : double(engine() % 257) - 128;
  return inputs;
}

int64_t weight(const QuantizedLayout &layout, const Tensor &words, int64_t n,
               int64_t k) {
  int64_t per = layout.perWord();
  auto word = static_cast<uint32_t>(static_cast<int32_t>(
      words.data[(n / 16 * layout.words() + k / per) * 16 + n % 16]));
  uint32_t bits = word >> (layout.bits * (k % per));
  return layout.bits == 8 ? int64_t(int8_t(bits)) : int64_t(bits & 15) - 8;
}

/// One row's element: groups in order, each an exact sum of integers.
float reference(const QuantizedLayout &layout, const Tensors &inputs,
                int64_t row, int64_t n) {
  float sum = 0;
  for (int64_t group = 0; group < layout.groups(); ++group) {
    int64_t begin = group * layout.group,
            end = std::min(begin + layout.group, layout.columns);
    auto x = [&](int64_t k) {
      return inputs[0].data[row * layout.columns + k];
    };
    double largest = 0;
    for (int64_t k = begin; k < end; ++k)
      largest = std::max(largest, std::abs(x(k)));
    int exponent = largest > 0 ? std::ilogb(largest) : -1000;
    double scale = std::ldexp(1.0, std::max(exponent, 14 - 127) - 13);
    int64_t at =
        (n / 16 * layout.scaleRows() + layout.scalesAt(group)) * 16 + n % 16;
    auto zero = layout.zeros ? int64_t(inputs[2].data[at + 16]) : 0;
    int64_t products = 0;
    for (int64_t k = begin; k < end; ++k)
      products += int64_t(std::nearbyint(x(k) / scale)) *
                  (weight(layout, inputs[1], n, k) - zero);
    double weightScale = inputs[2].data[at];
    sum = std::fma(float(products) * float(scale), float(weightScale), sum);
  }
  return sum;
}

/// A group of a row as bytes.
struct ByteGroup {
  float scale = 0;
  std::vector<int64_t> integers;
  ByteGroup(const QuantizedLayout &layout, const Tensor &x, int64_t row,
            int64_t group) {
    const double *of = &x.data[row * layout.columns + group * layout.group];
    float most = 0x1p-100f;
    for (int64_t k = 0; k < layout.group; ++k)
      most = std::max(most, std::abs(float(of[k])));
    scale = most / 127;
    for (int64_t k = 0; k < layout.group; ++k)
      integers.push_back(int64_t(std::nearbyint(float(of[k]) * (127 / most))));
  }
};

/// Rows as bytes: groups in order, each an exact sum of integers.
float referenceOfBytes(const QuantizedLayout &layout, const Tensors &inputs,
                       int64_t row, int64_t n) {
  float sum = 0;
  for (int64_t group = 0; group < layout.groups(); ++group) {
    const int64_t at =
        (n / 16 * layout.scaleRows() + layout.scalesAt(group)) * 16 + n % 16;
    const int64_t zero = layout.zeros ? int64_t(inputs[2].data[at + 16]) : 0;
    const ByteGroup x(layout, inputs[0], row, group);
    int64_t products = 0;
    for (int64_t k = 0; k < layout.group; ++k)
      products +=
          x.integers[k] *
          (weight(layout, inputs[1], n, group * layout.group + k) - zero);
    sum = std::fma(float(products) * float(inputs[2].data[at]), x.scale, sum);
  }
  return sum;
}

class IntegerProductsTest
    : public ::testing::TestWithParam<std::tuple<int64_t, bool, std::string>> {
protected:
  void SetUp() override {
    if (std::string missing = cpu::missingFeatures(target()); !missing.empty())
      GTEST_SKIP() << "this processor lacks" << missing;
  }
  int64_t bits() const { return std::get<0>(GetParam()); }
  bool zeros() const { return std::get<1>(GetParam()); }
  std::string target() const { return std::get<2>(GetParam()); }
};

TEST_P(IntegerProductsTest, AreExactInEveryBatch) {
  QuantizedLayout layout{83, 333, bits(), 64, zeros()};
  for (int64_t rows : {1, 5, 16}) {
    Tensors inputs = draw(layout, rows);
    Tensor result = run(layout, inputs, target());
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t n = 0; n < layout.rows; ++n)
        ASSERT_EQ(float(result.data[row * layout.rows + n]),
                  reference(layout, inputs, row, n))
            << "row " << row << " of " << rows << ", column " << n;
  }
}

TEST_P(IntegerProductsTest, AreExactOverManyColumns) {
  QuantizedLayout layout{40, 4128, bits(), 128, zeros()};
  Tensors inputs = draw(layout, 2);
  Tensor result = run(layout, inputs, target());
  for (int64_t i = 0; i < 2 * layout.rows; ++i)
    ASSERT_EQ(float(result.data[i]),
              reference(layout, inputs, i / layout.rows, i % layout.rows));
}

TEST_P(IntegerProductsTest, WhatIsNoNumberSpoilsItsRowAlone) {
  QuantizedLayout layout{32, 96, bits(), 32, zeros()};
  for (double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
    Tensors inputs = draw(layout, 3);
    inputs[0].data[layout.columns + 40] = bad;
    Tensor result = run(layout, inputs, target());
    for (int64_t i = 0; i < 3 * layout.rows; ++i) {
      int64_t row = i / layout.rows;
      if (row == 1)
        EXPECT_TRUE(std::isnan(result.data[i])) << "element " << i;
      else
        EXPECT_EQ(float(result.data[i]),
                  reference(layout, inputs, row, i % layout.rows));
    }
  }
}

class ByteProductsTest : public IntegerProductsTest {};

TEST_P(ByteProductsTest, AreExactInEveryBatch) {
  for (int64_t group : {32, 128})
    for (int64_t rows : {1, 5, 16, 17, 41}) {
      QuantizedLayout layout{83, 2176, bits(), group, zeros()};
      Tensors inputs = draw(layout, rows);
      Tensor result = run(layout, inputs, target(), /*byteRows=*/true);
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t n = 0; n < layout.rows; ++n)
          ASSERT_EQ(float(result.data[row * layout.rows + n]),
                    referenceOfBytes(layout, inputs, row, n))
              << "row " << row << " of " << rows << ", column " << n;
    }
}

// Every product at its bound, with both signs.
TEST_P(ByteProductsTest, NoSumLeavesItsBits) {
  for (int64_t rows : {3, 20}) {
    QuantizedLayout layout{16, 256, bits(), 128, zeros()};
    Tensors inputs = draw(layout, rows);
    for (double &word : inputs[1].data)
      word = bits() == 4 ? -1 : int32_t(0x7f7f7f7f);
    for (size_t i = 0; i < inputs[0].data.size(); ++i)
      inputs[0].data[i] = i / 256 % 2 ? -1.0 : 1.0;
    Tensor result = run(layout, inputs, target(), /*byteRows=*/true);
    for (int64_t i = 0; i < rows * 16; ++i)
      ASSERT_EQ(float(result.data[i]),
                referenceOfBytes(layout, inputs, i / 16, i % 16));
  }
}

// Of four experts, one without rows; the last rows are of none. Many rows of an
// expert on average, and few.
TEST_P(ByteProductsTest, AreExactOfExperts) {
  constexpr int64_t kColumns = 80, kExperts = 4;
  for (int64_t rows : {100, 40}) {
    const int64_t ends[] = {0, 1, rows / 2, rows / 2, rows - 10};
    QuantizedLayout layout{kExperts * kColumns, 256, bits(), 64, zeros()};
    Tensors inputs = draw(layout, rows);
    inputs[0].shape = {rows, layout.columns};
    inputs.emplace_back(std::vector<int64_t>{kExperts + 1});
    std::copy(std::begin(ends), std::end(ends), inputs[3].data.begin());
    const std::string text = fmt::format(
        R"(
func.func @main(%x: tensor<{0}x{1}xbf16>, %q: tensor<{4}x{5}x16xi32>, %s: tensor<{4}x{6}x16xf16>, %g: tensor<5xi32>) -> tensor<{0}x{2}xf32> {{
  %w = graph.dequantize %q, %s bits {7} group {8} {9} : tensor<{4}x{5}x16xi32>, tensor<{4}x{6}x16xf16> -> tensor<{3}x{2}x{1}xbf16>
  %y = graph.grouped_matmul %x, %w groups %g {{transposed}} : (tensor<{0}x{1}xbf16>, tensor<{3}x{2}x{1}xbf16>, tensor<5xi32>) -> tensor<{0}x{2}xf32>
  return %y : tensor<{0}x{2}xf32>
}})",
        rows, layout.columns, kColumns, kExperts, layout.micropanels(),
        layout.words(), layout.scaleRows(), layout.bits, layout.group,
        layout.zeros ? "zeros" : "");
    Tensor result =
        llvm::cantFail(runMain(text, target(), inputs, /*byteRows=*/true));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t expert = row < 1 ? 0 : row < ends[2] ? 1 : 3;
      for (int64_t n = 0; n < kColumns; ++n)
        ASSERT_EQ(float(result.data[row * kColumns + n]),
                  row < ends[4] ? referenceOfBytes(layout, inputs, row,
                                                   expert * kColumns + n)
                                : 0)
            << "row " << row << ", column " << n;
    }
  }
}

class WidenedProductsTest : public IntegerProductsTest {
protected:
  void expectTheSame(const QuantizedLayout &layout);
};

// More rows have other blocks, and other chunks of the sum.
void WidenedProductsTest::expectTheSame(const QuantizedLayout &layout) {
  Tensors inputs = draw(layout, 300);
  Tensor all = run(layout, inputs, target());
  for (int64_t rows : {17, 40}) {
    Tensor &x = inputs[0];
    x.shape[1] = rows;
    x.data.resize(rows * layout.columns);
    Tensor result = run(layout, inputs, target());
    for (size_t i = 0; i < result.data.size(); ++i)
      ASSERT_EQ(result.data[i], all.data[i])
          << "element " << i << " of " << rows << " rows";
    inputs = draw(layout, 300);
  }
}

TEST_P(WidenedProductsTest, AreTheSameInEveryBatch) {
  expectTheSame({83, 5230, bits(), 64, zeros()});
}

TEST_P(WidenedProductsTest, AreTheSameFromPackedRows) {
  expectTheSame({83, 1152, bits(), 64, zeros()});
}

// On a GPU up to 16 rows have one order of the sums, and more another.
class GpuProductsTest : public IntegerProductsTest {
  void SetUp() override {}
};

TEST_P(GpuProductsTest, AreTheSameInEveryBatch) {
  QuantizedLayout layout{83, 333, bits(), 64, zeros()};
  MainPrograms programs(target());
  for (const std::string &numerics : numericsOf(target())) {
    Tensor all;
    for (int64_t rows : {150, 70, 16, 3, 1}) {
      Tensors inputs = draw(layout, 150);
      inputs[0].shape[1] = rows;
      inputs[0].data.resize(rows * layout.columns);
      Tensor result = llvm::cantFail(programs.run(
          programOf(layout, rows), inputs, RunOptions{0, false, numerics}));
      if (rows == 150 || rows == 16)
        all = result;
      for (size_t i = 0; i < result.data.size(); ++i)
        ASSERT_EQ(result.data[i], all.data[i])
            << "element " << i << " of " << rows << " rows, " << numerics;
    }
  }
}

using Param = std::tuple<int64_t, bool, std::string>;

static std::string nameOf(const ::testing::TestParamInfo<Param> &info) {
  auto [bits, zeros, target] = info.param;
  return fmt::format("{}Bits{}_{}", bits, zeros ? "Zeros" : "",
                     target.substr(target.find(':') + 1));
}

INSTANTIATE_TEST_SUITE_P(
    Targets, GpuProductsTest,
    ::testing::Combine(::testing::Values(8, 4), ::testing::Bool(),
                       ::testing::Values("cuda:sm_80", "cuda:sm_90a")),
    nameOf);

// Matrix registers take other kernels.
std::vector<std::string> vectorTargets() {
  std::vector<std::string> names;
  for (const TileTarget &target : cpuTileTargets())
    if (!target.matrixTiles)
      names.push_back(target.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(
    Targets, WidenedProductsTest,
    ::testing::Combine(::testing::Values(8, 4), ::testing::Bool(),
                       ::testing::ValuesIn(cpuTargetNames())),
    nameOf);

INSTANTIATE_TEST_SUITE_P(
    Targets, ByteProductsTest,
    ::testing::Combine(::testing::Values(8, 4), ::testing::Bool(),
                       ::testing::ValuesIn(cpuTargetNames())),
    nameOf);

INSTANTIATE_TEST_SUITE_P(
    Targets, IntegerProductsTest,
    ::testing::Combine(::testing::Values(8, 4), ::testing::Bool(),
                       ::testing::ValuesIn(vectorTargets())),
    nameOf);

} // namespace
