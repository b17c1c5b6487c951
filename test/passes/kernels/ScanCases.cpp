// Scans along rows: of one chunk, of several, and of several of which the last
// is short; segments that end within chunks, with them, and much later.
#include "test/passes/kernels/KernelCases.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace tessera::testing {
namespace {

KernelCase discountedSum(int rows, int n, double discount, int segments,
                         const std::string &element) {
  std::string x = fmt::format("tensor<{}x{}x{}>", rows, n, element),
              s = fmt::format("tensor<{}x{}xi32>", rows, n);
  return {
      fmt::format("DiscountedSum_{}x{}_of_{}_{}", rows, n, segments, element),
      fmt::format(R"(
func.func @main(%x: {0}, %s: {1}) -> {0} {{
  %y = graph.discounted_sum %x, %s discount {2:.3f} : {0}, {1}
  return %y : {0}
}})",
                  x, s, discount),
      -1,
      1,
      element == "f32" ? 1e-6 : 1e-2,
      [=](auto &inputs) {
        for (int row = 0; row < rows; ++row) {
          auto begin = inputs[1].data.begin() + row * n;
          for (auto it = begin; it != begin + n; ++it)
            *it = std::floor((*it + 1) / 2 * segments);
          std::sort(begin, begin + n);
        }
      }};
}

KernelCase stateSpaceScan(int tokens, int groups, const std::string &element) {
  const std::string x = fmt::format("tensor<2x{}x4x8x{}>", tokens, element),
                    d = fmt::format("tensor<2x{}x4x{}>", tokens, element),
                    b = fmt::format("tensor<2x{}x{}x16x{}>", tokens, groups,
                                    element),
                    h = "tensor<4xf32>", s = "tensor<2x4x8x16xf32>";
  return {fmt::format("StateSpaceScan_{}_of_{}_{}", tokens, groups, element),
          fmt::format(R"(
func.func @main(%x: {0}, %d: {1}, %a: {3}, %b: {2}, %c: {2}, %k: {3}, %i: {4}) -> ({0}, {4}) {{
  %y, %s = graph.state_space_scan %x step %d rate %a write %b read %c skip %k bias %k from %i chunk 16
    : ({0}, {1}, {3}, {2}, {2}, {3}, {3}, {4}) -> ({0}, {4})
  return %y, %s : {0}, {4}
}})",
                      x, d, b, h, s),
          -1,
          1,
          element == "f32" ? 1e-6 : 1e-2,
          [](auto &inputs) {
            for (double &rate : inputs[2].data)
              rate = -1 - rate; // -2 to 0
          }};
}

} // namespace

const std::vector<KernelCase> &scanCases() {
  static const std::vector<KernelCase> cases{
      discountedSum(3, 1, 0.5, 1, "f32"), discountedSum(5, 60, 0.95, 4, "f32"),
      discountedSum(2, 256, 1, 3, "f32"), discountedSum(3, 700, 0.99, 2, "f32"),
      discountedSum(3, 129, 0, 1, "f32"), discountedSum(2, 90, 0.9, 3, "bf16"),
      stateSpaceScan(37, 2, "f32"),       stateSpaceScan(16, 1, "bf16"),
      stateSpaceScan(1, 2, "f32")};
  return cases;
}

} // namespace tessera::testing
