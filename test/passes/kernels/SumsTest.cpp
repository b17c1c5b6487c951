// Sums of columns, and of whole tensors, on CPUs: as if in twice the precision,
// rounded once; so that zeros between others change no bit, nor does their
// order.
#include "compiler/target/cpu/CpuTarget.h"
#include "hardware/Targets.h"
#include "test/support/RunKernels.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace tessera;
using namespace tessera::testing;
using interpreter::Tensor;

namespace {

constexpr int64_t kColumns = 77;

/// On a processor that has the target's instructions.
class SumsTest : public ::testing::TestWithParam<std::string> {
protected:
  void SetUp() override {
    if (std::string missing = cpu::missingFeatures(GetParam());
        !missing.empty())
      GTEST_SKIP() << "this processor lacks" << missing;
  }
};

class ColumnSumsTest : public SumsTest {
protected:
  Tensor sum(const Tensor &x) {
    return llvm::cantFail(programs.run(fmt::format(R"(
func.func @main(%x: tensor<{0}x{1}xf32>) -> tensor<{1}xf32> {{
  %s = graph.reduce %x sum dims [0] : tensor<{0}x{1}xf32> -> tensor<{1}xf32>
  return %s : tensor<{1}xf32>
}})",
                                                   x.shape[0], kColumns),
                                       {x}));
  }
  MainPrograms programs{GetParam()};
};

/// Floats of both signs and many sizes.
Tensor draw(int64_t rows) {
  Tensor tensor({rows, kColumns});
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal, size(0, 4);
  for (double &x : tensor.data)
    x = float(normal(random) * std::exp(size(random)));
  return tensor;
}

TEST_P(ColumnSumsTest, AreRoundedOnce) {
  const Tensor x = draw(3000);
  const Tensor sums = sum(x);
  for (int64_t column = 0; column < kColumns; ++column) {
    long double exact = 0;
    for (int64_t row = 0; row < x.shape[0]; ++row)
      exact += x.data[size_t(row * kColumns + column)];
    EXPECT_EQ(float(sums.data[size_t(column)]), float(exact)) << column;
  }
}

TEST_P(ColumnSumsTest, DoNotDependOnZeros) {
  const Tensor x = draw(100);
  Tensor apart({300, kColumns});
  for (int64_t row = 0; row < 100; ++row)
    std::copy_n(x.data.begin() + row * kColumns, kColumns,
                apart.data.begin() + (3 * row + row % 2) * kColumns);
  EXPECT_EQ(sum(x).data, sum(apart).data);
}

TEST_P(ColumnSumsTest, AreInfiniteWhereTheyOverflow) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Tensor x = draw(50);
  x.data[20 * kColumns + 5] = -kInfinity;
  x.data[20 * kColumns + 6] = x.data[30 * kColumns + 6] = 3e38;
  x.data[20 * kColumns + 7] = kInfinity;
  x.data[30 * kColumns + 7] = -kInfinity;
  const Tensor sums = sum(x);
  EXPECT_EQ(sums.data[5], -kInfinity);
  EXPECT_EQ(sums.data[6], kInfinity);
  EXPECT_TRUE(std::isnan(sums.data[7]));
  EXPECT_TRUE(std::isfinite(sums.data[8]));
}

class AllSumsTest : public SumsTest {
protected:
  double sum(const Tensor &x) {
    return llvm::cantFail(programs.run(fmt::format(R"(
func.func @main(%x: tensor<{0}xf32>) -> tensor<f32> {{
  %s = graph.reduce %x sum dims [0] : tensor<{0}xf32> -> tensor<f32>
  return %s : tensor<f32>
}})",
                                                   x.size()),
                                       {x}))
        .data.front();
  }
  MainPrograms programs{GetParam()};
};

// Less than a tile, one block with a ragged end, and several.
TEST_P(AllSumsTest, AreRoundedOnceInAnyOrder) {
  for (int64_t size : {5, 3001, 70007}) {
    Tensor x = draw(size);
    x.data.resize(size_t(size));
    x.shape = {size};
    long double exact = 0;
    for (double each : x.data)
      exact += each;
    EXPECT_EQ(float(sum(x)), float(exact)) << size;
    std::shuffle(x.data.begin(), x.data.end(), std::mt19937_64(5));
    EXPECT_EQ(float(sum(x)), float(exact)) << size;
  }
}

auto nameOf(const ::testing::TestParamInfo<std::string> &info) {
  return info.param.substr(info.param.find(':') + 1);
}

INSTANTIATE_TEST_SUITE_P(Targets, ColumnSumsTest,
                         ::testing::ValuesIn(cpuTargetNames()), nameOf);
INSTANTIATE_TEST_SUITE_P(Targets, AllSumsTest,
                         ::testing::ValuesIn(cpuTargetNames()), nameOf);

} // namespace
