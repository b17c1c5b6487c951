// A sequence's attention as a training step computes it and as inference does,
// over pages: the same bits where both add up 64 keys at a time. Not in bf16 on
// sm_90a, whose training kernels have other tiles beyond 64 tokens.
#include "runtime/support/Floats.h"
#include "test/support/RunKernels.h"
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

using namespace tessera;
using namespace tessera::testing;
using interpreter::Tensor;
using interpreter::Tensors;

namespace {

constexpr int64_t kPage = 64, kHeads = 2, kKvHeads = 1, kHeadDim = 64;

std::string trained(int64_t tokens, const char *type) {
  return fmt::format(
      R"(
func.func @main(%q: {0}, %k: {1}, %v: {1}) -> {0} {{
  %a:2 = graph.attention %q, %k, %v scale 0.125 {{causal}} : {0}, {1}, {1} -> {0}, tensor<1x{2}x{3}xf32>
  return %a#0 : {0}
}})",
      fmt::format("tensor<1x{}x{}x{}x{}>", tokens, kHeads, kHeadDim, type),
      fmt::format("tensor<1x{}x{}x{}x{}>", tokens, kKvHeads, kHeadDim, type),
      kHeads, tokens);
}

std::string paged(int64_t tokens, const char *type) {
  return fmt::format(
      R"(
func.func @main(%q: {0}, %t: {2}, %s: tensor<1xi32>, %l: tensor<1xi32>, %k: {1}, %v: {1}) -> {0} {{
  %a = graph.paged_attention %q, %k, %v pages %t starts %s lengths %l scale 0.125 : {0}, {1}, {2}, tensor<1xi32>
  return %a : {0}
}})",
      fmt::format("tensor<1x{}x{}x{}x{}>", tokens, kHeads, kHeadDim, type),
      fmt::format("tensor<{}x{}x{}x{}x{}>", tokens / kPage, kPage, kKvHeads,
                  kHeadDim, type),
      fmt::format("tensor<1x{}xi32>", tokens / kPage));
}

Tensor draw(std::vector<int64_t> shape, unsigned seed) {
  Tensor tensor(shape);
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  for (double &x : tensor.data)
    x = bf16ToFloat(floatToBf16(2 * normal(engine)));
  return tensor;
}

class AttentionBitsTest
    : public ::testing::TestWithParam<std::tuple<std::string, const char *>> {};

TEST_P(AttentionBitsTest, AreTheSameInTrainingAndInAPrompt) {
  const auto &[target, type] = GetParam();
  constexpr int64_t kTokens = 192, kPages = kTokens / kPage;
  Tensor q = draw({1, kTokens, kHeads, kHeadDim}, 1),
         k = draw({1, kTokens, kKvHeads, kHeadDim}, 2),
         v = draw({1, kTokens, kKvHeads, kHeadDim}, 3);
  Tensor table({1, kPages}), start({1}), length({1});
  std::iota(table.data.begin(), table.data.end(), 0);
  length.data[0] = double(kTokens);
  Tensor keys = k, values = v;
  keys.shape = values.shape = {kPages, kPage, kKvHeads, kHeadDim};
  MainPrograms programs(target);
  for (const std::string &numerics : numericsOf(target)) {
    const RunOptions options{0, false, numerics};
    const Tensor inTraining = llvm::cantFail(
                     programs.run(trained(kTokens, type), {q, k, v}, options)),
                 inAPrompt = llvm::cantFail(programs.run(
                     paged(kTokens, type),
                     {q, table, start, length, keys, values}, options));
    EXPECT_EQ(inTraining.data, inAPrompt.data) << numerics;
  }
}

using Parameter = std::tuple<std::string, const char *>;
INSTANTIATE_TEST_SUITE_P(Targets, AttentionBitsTest,
                         ::testing::Values(Parameter{"cuda:sm_80", "bf16"},
                                           Parameter{"cuda:sm_80", "f32"},
                                           Parameter{"cuda:sm_90a", "f32"}),
                         [](const auto &info) {
                           return std::get<0>(info.param).substr(5) + "_" +
                                  std::get<1>(info.param);
                         });

} // namespace
