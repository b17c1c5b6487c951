// Long sums on the emulated GPU, in both modes of arithmetic, against their
// error contract. fp32: √K u Σ|a b|, u = 2^-24. bf16: products are added in the
// tensor cores, as everybody does; the sum is truncated once for each step of 8
// terms (sm_80) or 16 (sm_90), hence K / 8 · 2^-23 Σ|a b| at worst.
#include "runtime/support/Floats.h"
#include "test/support/RunKernels.h"
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

using namespace tessera;
using namespace tessera::testing;
using interpreter::Tensor;

namespace {

constexpr int64_t kRows = 16, kColumns = 16;

std::string productOf(int64_t terms, const std::string &type) {
  return fmt::format(
      R"(
func.func @main(%a: tensor<{0}x{2}x{3}>, %b: tensor<{1}x{2}x{3}>) -> tensor<{0}x{1}xf32> {{
  %c = graph.einsum "mk,nk->mn" %a, %b : (tensor<{0}x{2}x{3}>, tensor<{1}x{2}x{3}>) -> tensor<{0}x{1}xf32>
  return %c : tensor<{0}x{1}xf32>
}})",
      kRows, kColumns, terms, type);
}

/// Of one sign the rounding errors of tensor cores, which are towards zero, add
/// up; of any sign terms cancel.
Tensor draw(int64_t rows, int64_t terms, bool positive, bool isBf16,
            unsigned seed) {
  Tensor tensor({rows, terms});
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<float> uniform(positive ? 0.5f : -1.0f, 1);
  for (double &x : tensor.data) {
    const float drawn = uniform(engine);
    x = isBf16 ? bf16ToFloat(floatToBf16(drawn)) : drawn;
  }
  return tensor;
}

/// The largest error, as a part of the one allowed.
double worstError(const Tensor &a, const Tensor &b, const Tensor &c,
                  bool isBf16) {
  const int64_t terms = a.shape[1];
  double worst = 0;
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < terms; ++k) {
        const double term = a.data[i * terms + k] * b.data[j * terms + k];
        sum += term;
        magnitude += std::abs(term);
      }
      const double factor = isBf16 ? double(terms) / 8 * 0x1p-23
                                   : std::sqrt(double(terms)) * 0x1p-24;
      worst = std::max(worst, std::abs(c.data[i * kColumns + j] - sum) /
                                  (factor * magnitude));
    }
  return worst;
}

using Parameter = std::tuple<std::string, std::string>;
class ErrorContractTest : public ::testing::TestWithParam<Parameter> {};

TEST_P(ErrorContractTest, HoldsForLongSums) {
  const auto &[target, type] = GetParam();
  const bool isBf16 = type == "bf16";
  MainPrograms programs(target);
  for (int64_t terms : {256, 4096})
    for (bool positive : {false, true}) {
      const Tensor a = draw(kRows, terms, positive, isBf16, 1),
                   b = draw(kColumns, terms, positive, isBf16, 2);
      for (const std::string &numerics : numericsOf(target)) {
        const Tensor c = llvm::cantFail(programs.run(
            productOf(terms, type), {a, b}, RunOptions{1, false, numerics}));
        const double worst = worstError(a, b, c, isBf16);
        EXPECT_LE(worst, 1) << terms << " terms, " << numerics
                            << (positive ? ", of one sign" : "");
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, ErrorContractTest,
                         ::testing::Combine(::testing::Values("cuda:sm_80",
                                                              "cuda:sm_90a"),
                                            ::testing::Values("f32", "bf16")),
                         [](const auto &info) {
                           return std::get<0>(info.param).substr(5) + "_" +
                                  std::get<1>(info.param);
                         });

} // namespace
