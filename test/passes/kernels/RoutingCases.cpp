// Routing of mixtures of experts: ties, entries of no group, entries counted in
// one chunk and in several; rows that go nowhere; a router as models have it.
#include "test/passes/kernels/KernelCases.h"
#include <cmath>
#include <fmt/format.h>

namespace tessera::testing {
namespace {

/// Whole numbers: those drawn, downwards.
void makeWhole(interpreter::Tensor &tensor) {
  for (double &value : tensor.data)
    value = std::floor(value);
}

KernelCase topK(int rows, int n, int k, const std::string &element) {
  std::string s = fmt::format("tensor<{}x{}x{}>", rows, n, element),
              i = fmt::format("tensor<{}x{}xi32>", rows, k),
              y = fmt::format("tensor<{}x{}x{}>", rows, k, element);
  // Whole scores, of which many are equal.
  return {fmt::format("TopK_{}x{}x{}_{}", rows, n, k, element),
          fmt::format(R"(
func.func @main(%s: {0}) -> ({1}, {2}) {{
  %i = graph.top_k %s : ({0}) -> {1}
  %y = graph.take_along_axis %s at %i : ({0}, {1}) -> {2}
  return %i, %y : {1}, {2}
}})",
                      s, i, y),
          -20,
          20,
          0,
          [](auto &inputs) { makeWhole(inputs[0]); }};
}

KernelCase ranks(int rows, int n, int groups, bool scored) {
  std::string i = fmt::format("tensor<{}x{}xi32>", rows, n),
              s = fmt::format("tensor<{}x{}xf32>", rows, n);
  return {fmt::format("Ranks{}_{}x{}_of_{}", scored ? "ByScores" : "", rows, n,
                      groups),
          fmt::format(R"(
func.func @main(%i: {0}, %s: {1}) -> {0} {{
  %r = graph.rank_in_group %i {2} groups {3} : ({0}{4}) -> {0}
  return %r : {0}
}})",
                      i, s, scored ? "by %s" : "", groups,
                      scored ? ", " + s : ""),
          0,
          static_cast<double>(groups),
          0,
          [](auto &inputs) {
            makeWhole(inputs[0]);
            makeWhole(inputs[1]);
          }};
}

KernelCase groupRows(int n, int groups) {
  std::string i = fmt::format("tensor<{}xi32>", n),
              o = fmt::format("tensor<{}xi32>", groups + 1);
  return {fmt::format("GroupRows_{}_of_{}", n, groups),
          fmt::format(R"(
func.func @main(%i: {0}) -> ({1}, {0}) {{
  %o, %p = graph.group_rows %i : ({0}) -> ({1}, {0})
  return %o, %p : {1}, {0}
}})",
                      i, o),
          -1,
          groups + 1.0,
          0,
          [](auto &inputs) { makeWhole(inputs[0]); }};
}

// There and back, with weights on either way and the gradients of both.
KernelCase rows(int tokens, int k, int width, const std::string &element) {
  int all = tokens * k + 3;
  std::string x = fmt::format("tensor<{}x{}x{}>", tokens, width, element),
              y = fmt::format("tensor<{}x{}x{}>", all, width, element),
              p = fmt::format("tensor<{}x{}xi32>", tokens, k),
              w = fmt::format("tensor<{}x{}xf32>", tokens, k);
  return {fmt::format("Rows_{}x{}x{}_{}", tokens, k, width, element),
          fmt::format(R"(
func.func @main(%x: {0}, %y: {1}, %p: {2}, %w: {3}) -> ({1}, {1}, {0}, {0}) {{
  %a = graph.dispatch_rows %x slots %p : ({0}, {2}) -> {1}
  %b = graph.dispatch_rows %x slots %p weights %w : ({0}, {2}, {3}) -> {1}
  %c = graph.combine_rows %y slots %p : ({1}, {2}) -> {0}
  %d = graph.combine_rows %y slots %p weights %w : ({1}, {2}, {3}) -> {0}
  return %a, %b, %c, %d : {1}, {1}, {0}, {0}
}})",
                      x, y, p, w),
          -2,
          2,
          element == "f32" ? 1e-6 : 1e-2,
          [=](auto &inputs) {
            // Every fifth goes nowhere; slots fall from the last but two.
            auto &slots = inputs[2].data;
            for (size_t i = 0; i < slots.size(); ++i)
              slots[i] = i % 5 == 4 ? -1 : all - 3 - static_cast<int>(i);
          }};
}

// Scores → experts and weights → rows → experts' matrices → tokens.
const char *kLayer = R"(
func.func @main(%x: tensor<75x32xf32>, %r: tensor<6x32xf32>, %v: tensor<6x40x32xf32>) -> (tensor<75x40xf32>, tensor<7xi32>) {
  %s = graph.einsum "tk,ek->te" %x, %r : (tensor<75x32xf32>, tensor<6x32xf32>) -> tensor<75x6xf32>
  %q = graph.softmax %s : tensor<75x6xf32>
  %i = graph.top_k %q : (tensor<75x6xf32>) -> tensor<75x2xi32>
  %w = graph.take_along_axis %q at %i : (tensor<75x6xf32>, tensor<75x2xi32>) -> tensor<75x2xf32>
  %o, %p = graph.group_rows %i : (tensor<75x2xi32>) -> (tensor<7xi32>, tensor<75x2xi32>)
  %a = graph.dispatch_rows %x slots %p : (tensor<75x32xf32>, tensor<75x2xi32>) -> tensor<150x32xf32>
  %b = graph.grouped_matmul %a, %v groups %o {transposed} : (tensor<150x32xf32>, tensor<6x40x32xf32>, tensor<7xi32>) -> tensor<150x40xf32>
  %y = graph.combine_rows %b slots %p weights %w : (tensor<150x40xf32>, tensor<75x2xi32>, tensor<75x2xf32>) -> tensor<75x40xf32>
  return %y, %o : tensor<75x40xf32>, tensor<7xi32>
})";

} // namespace

const std::vector<KernelCase> &routingCases() {
  static const std::vector<KernelCase> cases{topK(1, 8, 2, "f32"),
                                             topK(67, 8, 2, "f32"),
                                             topK(5, 60, 4, "f32"),
                                             topK(3, 130, 8, "bf16"),
                                             ranks(2, 33, 5, false),
                                             ranks(2, 300, 9, false),
                                             ranks(2, 70, 5, true),
                                             groupRows(1, 4),
                                             groupRows(37, 3),
                                             groupRows(320, 16),
                                             groupRows(403, 20),
                                             rows(1, 2, 5, "f32"),
                                             rows(29, 3, 48, "f32"),
                                             rows(29, 2, 37, "bf16"),
                                             {"MoeLayer", kLayer, -1, 1, 1e-5}};
  return cases;
}

} // namespace tessera::testing
