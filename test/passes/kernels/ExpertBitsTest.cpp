// Experts' products: the same bits for a token whether it comes alone, with
// others in a batch or in a prompt, and whoever else has its expert.
#include "compiler/target/cpu/CpuTarget.h"
#include "hardware/Targets.h"
#include "runtime/support/Floats.h"
#include "runtime/support/QuantizedLayout.h"
#include "test/support/RunKernels.h"
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

using namespace tessera;
using namespace tessera::testing;
using interpreter::Tensor;
using interpreter::Tensors;

namespace {

constexpr int64_t kExperts = 4, kColumns = 80;

/// Weights of bf16 in micropanels.
std::string programOf(int64_t rows, int64_t terms) {
  QuantizedLayout layout{kExperts * kColumns, terms, 16};
  return fmt::format(
      R"(
func.func @main(%x: tensor<{0}x{1}xbf16>, %q: tensor<{4}x{5}x16xbf16>, %g: tensor<{6}xi32>) -> tensor<{0}x{2}xf32> {{
  %w = graph.dequantize %q bits 16 group 32 : tensor<{4}x{5}x16xbf16> -> tensor<{3}x{2}x{1}xbf16>
  %y = graph.grouped_matmul %x, %w groups %g {{transposed}} : (tensor<{0}x{1}xbf16>, tensor<{3}x{2}x{1}xbf16>, tensor<{6}xi32>) -> tensor<{0}x{2}xf32>
  return %y : tensor<{0}x{2}xf32>
}})",
      rows, terms, kColumns, kExperts, layout.micropanels(),
      layout.words() * layout.perWord(), kExperts + 1);
}

void draw(Tensor &tensor, unsigned seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  for (double &x : tensor.data)
    x = bf16ToFloat(floatToBf16(normal(engine)));
}

class ExpertBitsTest
    : public ::testing::TestWithParam<std::tuple<std::string, int64_t>> {
protected:
  void SetUp() override {
    if (std::string missing = cpu::missingFeatures(target()); !missing.empty())
      GTEST_SKIP() << "this processor lacks" << missing;
    QuantizedLayout layout{kExperts * kColumns, terms(), 16};
    weights = Tensor(
        {layout.micropanels(), layout.words() * layout.perWord(), int64_t(16)});
    draw(weights, 1);
  }
  std::string target() const { return std::get<0>(GetParam()); }
  int64_t terms() const { return std::get<1>(GetParam()); }

  /// Rows [first, first + counts of all) of `from`, the first of which are of
  /// expert 0.
  Tensor run(const Tensor &from, int64_t first,
             const std::vector<int64_t> &counts) {
    Tensor offsets({kExperts + 1});
    for (int64_t i = 0; i < kExperts; ++i)
      offsets.data[i + 1] = offsets.data[i] + double(counts[i]);
    auto rows = int64_t(offsets.data.back());
    Tensor x({rows, terms()});
    std::copy_n(from.data.begin() + first * terms(), rows * terms(),
                x.data.begin());
    return llvm::cantFail(
        runMain(programOf(rows, terms()), target(), {x, weights, offsets}));
  }

  Tensor weights;
};

TEST_P(ExpertBitsTest, AreTheSameAloneInABatchAndInAPrompt) {
  Tensor all({330, terms()});
  draw(all, 2);
  // Rows of expert 2 in a prompt: 90 to 299.
  Tensor prompt = run(all, 0, {1, 89, 210, 30});
  auto expectSame = [&](int64_t first, const std::vector<int64_t> &counts) {
    Tensor part = run(all, first, counts);
    int64_t before = (counts[0] + counts[1]) * kColumns;
    for (int64_t i = 0; i < counts[2] * kColumns; ++i)
      ASSERT_EQ(part.data[before + i],
                prompt.data[first * kColumns + before + i])
          << "row " << first + (before + i) / kColumns << ", column "
          << i % kColumns;
  };
  for (int64_t row : {90, 91, 121, 122, 200, 289, 299})
    expectSame(row, {0, 0, 1, 0});
  expectSame(89, {0, 1, 1, 1});
  expectSame(100, {0, 0, 7, 3});
  expectSame(85, {2, 3, 45, 0});
  expectSame(88, {1, 1, 100, 5});
}

std::string
nameOf(const ::testing::TestParamInfo<ExpertBitsTest::ParamType> &info) {
  auto [target, terms] = info.param;
  return fmt::format("{}terms{}", target.substr(4), terms);
}

// Several chunks of the sum where rows are packed; terms that no register has.
INSTANTIATE_TEST_SUITE_P(
    Targets, ExpertBitsTest,
    ::testing::Combine(::testing::ValuesIn(cpuTargetNames()),
                       ::testing::Values(64, 1152, 105)),
    nameOf);

} // namespace
