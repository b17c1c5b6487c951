// What a layer makes of a token outside of attention, on the emulated GPU: the
// same bits however many rows are beside its own and whichever tiles they take.
#include "test/support/RunKernels.h"
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

using namespace tessera;
using namespace tessera::testing;
using interpreter::Tensor;
using interpreter::Tensors;

namespace {

constexpr int64_t kWidth = 200, kInner = 136, kGroups = 3, kMost = 150;

/// A norm, a gated layer and what it is added to.
std::string layer(int64_t rows, const char *type) {
  return fmt::format(R"(
func.func @main(%x: tensor<{0}x{1}x{3}>, %g: tensor<{1}x{3}>, %u: tensor<{2}x{1}x{3}>, %w: tensor<{2}x{1}x{3}>, %v: tensor<{1}x{2}x{3}>) -> tensor<{0}x{1}x{3}> {{
  %n = graph.rms_norm %x, %g eps 1.0e-6 : tensor<{0}x{1}x{3}>, tensor<{1}x{3}>
  %a = graph.einsum "bk,nk->bn" %n, %u : (tensor<{0}x{1}x{3}>, tensor<{2}x{1}x{3}>) -> tensor<{0}x{2}x{3}>
  %s = graph.silu %a : tensor<{0}x{2}x{3}>
  %b = graph.einsum "bk,nk->bn" %n, %w : (tensor<{0}x{1}x{3}>, tensor<{2}x{1}x{3}>) -> tensor<{0}x{2}x{3}>
  %m = graph.mul %s, %b : tensor<{0}x{2}x{3}>
  %y = graph.einsum "bk,nk->bn" %m, %v : (tensor<{0}x{2}x{3}>, tensor<{1}x{2}x{3}>) -> tensor<{0}x{1}x{3}>
  %z = graph.add %x, %y : tensor<{0}x{1}x{3}>
  return %z : tensor<{0}x{1}x{3}>
}})",
                     rows, kWidth, kInner, type);
}

/// Rows by an expert each, in the order of experts.
std::string experts(int64_t rows, const char *type) {
  return fmt::format(R"(
func.func @main(%x: tensor<{0}x{1}x{3}>, %w: tensor<{4}x{2}x{1}x{3}>, %g: tensor<{5}xi32>) -> tensor<{0}x{2}x{3}> {{
  %y = graph.grouped_matmul %x, %w groups %g {{transposed}} : (tensor<{0}x{1}x{3}>, tensor<{4}x{2}x{1}x{3}>, tensor<{5}xi32>) -> tensor<{0}x{2}x{3}>
  return %y : tensor<{0}x{2}x{3}>
}})",
                     rows, kWidth, kInner, type, kGroups, kGroups + 1);
}

Tensor draw(std::vector<int64_t> shape, unsigned seed) {
  Tensor tensor(shape);
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0, 0.5);
  for (double &x : tensor.data)
    x = normal(engine);
  return tensor;
}

class RowBitsTest
    : public ::testing::TestWithParam<std::tuple<std::string, const char *>> {
protected:
  Tensor run(const std::string &text, const Tensors &inputs) {
    return llvm::cantFail(
        programs.run(text, inputs, RunOptions{0, false, numerics}));
  }
  const char *type() const { return std::get<1>(GetParam()); }
  /// Row `first` and those behind it of `all`.
  static Tensor rowsOf(const Tensor &all, int64_t first, int64_t rows) {
    int64_t width = all.shape[1];
    Tensor part({rows, width});
    std::copy_n(all.data.begin() + first * width, rows * width,
                part.data.begin());
    return part;
  }
  void expectSame(const Tensor &part, const Tensor &all, int64_t first) const {
    EXPECT_EQ(part.data, rowsOf(all, first, part.shape[0]).data)
        << part.shape[0] << " rows from " << first << " on, " << numerics;
  }
  void expectSameOfALayer();
  void expectSameOfAnExpert();

  MainPrograms programs{std::get<0>(GetParam())};
  std::string numerics;
};

void RowBitsTest::expectSameOfALayer() {
  Tensor x = draw({kMost, kWidth}, 1);
  Tensors weights = {draw({kWidth}, 2), draw({kInner, kWidth}, 3),
                     draw({kInner, kWidth}, 4), draw({kWidth, kInner}, 5)};
  auto outputs = [&](int64_t first, int64_t rows) {
    Tensors inputs = {rowsOf(x, first, rows)};
    inputs.insert(inputs.end(), weights.begin(), weights.end());
    return run(layer(rows, type()), inputs);
  };
  Tensor all = outputs(0, kMost);
  for (auto [first, rows] : {std::pair(0, 1),
                             {67, 1},
                             {149, 1},
                             {13, 5},
                             {100, 16},
                             {3, 17},
                             {80, 70}})
    expectSame(outputs(first, rows), all, first);
}

void RowBitsTest::expectSameOfAnExpert() {
  Tensor x = draw({kMost, kWidth}, 1),
         weights = draw({kGroups, kInner, kWidth}, 2);
  auto outputs = [&](int64_t first, int64_t rows,
                     const std::vector<double> &groups) {
    Tensor offsets({kGroups + 1});
    offsets.data = groups;
    return run(experts(rows, type()),
               {rowsOf(x, first, rows), weights, offsets});
  };
  Tensor all = outputs(0, kMost, {0, 40, 45, kMost});
  expectSame(outputs(0, 1, {0, 1, 1, 1}), all, 0);
  expectSame(outputs(42, 1, {0, 0, 1, 1}), all, 42);
  expectSame(outputs(149, 1, {0, 0, 0, 1}), all, 149);
  expectSame(outputs(38, 8, {0, 2, 7, 8}), all, 38);
  expectSame(outputs(30, 60, {0, 10, 15, 60}), all, 30);
}

TEST_P(RowBitsTest, OfALayer) {
  for (const std::string &each : numericsOf(std::get<0>(GetParam()))) {
    numerics = each;
    expectSameOfALayer();
  }
}

TEST_P(RowBitsTest, OfAnExpert) {
  for (const std::string &each : numericsOf(std::get<0>(GetParam()))) {
    numerics = each;
    expectSameOfAnExpert();
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RowBitsTest,
                         ::testing::Combine(::testing::Values("cuda:sm_80",
                                                              "cuda:sm_90a"),
                                            ::testing::Values("bf16", "f32")),
                         [](const auto &info) {
                           return std::get<0>(info.param).substr(5) +
                                  std::get<1>(info.param);
                         });

} // namespace
