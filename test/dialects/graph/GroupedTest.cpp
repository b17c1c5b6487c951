// Grouped contractions against loops over groups and their rows. What belongs
// to no group is NaN, and must not be seen.
#include "test/support/GraphTesting.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace mlir;
using namespace tessera::testing;

namespace {

constexpr int64_t kGroups = 4, kRows = 11, kCapacity = 5, kK = 3, kN = 2;

/// Rows of a group in a matrix of all rows: [begin, end).
struct Run {
  int64_t begin, end;
};

struct Layout {
  bool isPadded;
  std::vector<double> groups;

  std::vector<Run> runs() const {
    std::vector<Run> runs;
    for (int64_t g = 0; g < kGroups; ++g) {
      auto first = static_cast<int64_t>(groups[g]);
      runs.push_back(isPadded
                         ? Run{g * kCapacity, g * kCapacity + first}
                         : Run{first, static_cast<int64_t>(groups[g + 1])});
    }
    return runs;
  }
  int64_t rows() const { return isPadded ? kGroups * kCapacity : kRows; }
  std::string type(int64_t width) const {
    std::string rows =
        isPadded ? std::to_string(kGroups) + "x" + std::to_string(kCapacity)
                 : std::to_string(kRows);
    return "tensor<" + rows + "x" + std::to_string(width) + "xf64>";
  }
  SmallVector<int64_t> shape(int64_t width) const {
    if (isPadded)
      return {kGroups, kCapacity, width};
    return {kRows, width};
  }
};

const Layout kLayouts[] = {
    {false, {0, 3, 3, 10, 11}}, // one without rows
    {false, {0, 0, 2, 2, 6}},   // rows behind the last group
    {false, {0, 0, 11, 11, 11}},
    {true, {5, 0, 2, 4}},
    {true, {0, 0, 0, 5}}};

Tensor drawRows(const Layout &layout, int64_t width, unsigned seed) {
  Tensor all = draw({layout.rows(), width}, seed), own(all.shape, NAN);
  for (Run run : layout.runs())
    for (int64_t i = run.begin * width; i < run.end * width; ++i)
      own.data[i] = all.data[i];
  return {layout.shape(width), own.data};
}

std::string function(const std::string &op, const std::string &lhs,
                     const std::string &rhs, const Layout &layout,
                     const std::string &out, const std::string &attrs = "") {
  std::string groups =
      "tensor<" + std::to_string(layout.groups.size()) + "xi32>";
  return "func.func @f(%x: " + lhs + ", %y: " + rhs + ", %g: " + groups +
         ") -> " + out + " { %z = graph." + op + " %x, %y groups %g " + attrs +
         " : (" + lhs + ", " + rhs + ", " + groups + ") -> " + out +
         " return %z : " + out + " }";
}

void expectEqual(const Tensors &results, const Tensor &expected) {
  ASSERT_EQ(results.size(), 1u);
  const Tensor &actual = results[0];
  ASSERT_EQ(actual.size(), expected.size());
  for (int64_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual.data[i], expected.data[i], 1e-12) << "element " << i;
}

Tensor groupsOf(const Layout &layout) {
  return {{static_cast<int64_t>(layout.groups.size())}, layout.groups};
}

TEST(GraphGrouped, MatmulIsAProductForEachGroup) {
  for (const Layout &layout : kLayouts)
    for (bool transposed : {false, true}) {
      Tensor x = drawRows(layout, kK, 1), w = transposed
                                                  ? draw({kGroups, kN, kK}, 2)
                                                  : draw({kGroups, kK, kN}, 2);
      Tensor expected({layout.rows(), kN});
      auto runs = layout.runs();
      for (int64_t g = 0; g < kGroups; ++g)
        for (int64_t r = runs[g].begin; r < runs[g].end; ++r)
          for (int64_t n = 0; n < kN; ++n)
            for (int64_t k = 0; k < kK; ++k)
              expected.at({r, n}) +=
                  x.data[r * kK + k] *
                  (transposed ? w.at({g, n, k}) : w.at({g, k, n}));
      expectEqual(evaluate(function("grouped_matmul", layout.type(kK),
                                    transposed ? "tensor<4x2x3xf64>"
                                               : "tensor<4x3x2xf64>",
                                    layout, layout.type(kN),
                                    transposed ? "{transposed}" : ""),
                           {x, w, groupsOf(layout)}),
                  expected);
    }
}

TEST(GraphGrouped, OuterSumsOverTheRowsOfEachGroup) {
  for (const Layout &layout : kLayouts) {
    Tensor x = drawRows(layout, kK, 3), y = drawRows(layout, kN, 4);
    Tensor expected({kGroups, kK, kN});
    auto runs = layout.runs();
    for (int64_t g = 0; g < kGroups; ++g)
      for (int64_t r = runs[g].begin; r < runs[g].end; ++r)
        for (int64_t k = 0; k < kK; ++k)
          for (int64_t n = 0; n < kN; ++n)
            expected.at({g, k, n}) += x.data[r * kK + k] * y.data[r * kN + n];
    expectEqual(evaluate(function("grouped_outer", layout.type(kK),
                                  layout.type(kN), layout, "tensor<4x3x2xf64>"),
                         {x, y, groupsOf(layout)}),
                expected);
  }
}

} // namespace
