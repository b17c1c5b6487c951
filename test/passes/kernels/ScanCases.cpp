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

} // namespace

const std::vector<KernelCase> &scanCases() {
  static const std::vector<KernelCase> cases{
      discountedSum(3, 1, 0.5, 1, "f32"), discountedSum(5, 60, 0.95, 4, "f32"),
      discountedSum(2, 256, 1, 3, "f32"), discountedSum(3, 700, 0.99, 2, "f32"),
      discountedSum(3, 129, 0, 1, "f32"), discountedSum(2, 90, 0.9, 3, "bf16")};
  return cases;
}

} // namespace tessera::testing
