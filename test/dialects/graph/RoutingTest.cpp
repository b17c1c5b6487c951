// Routing against sorting and plain loops: ties, entries of no group, rows that
// several chunks count, and scores that are no numbers.
#include "test/support/GraphTesting.h"
#include "llvm/Support/FormatVariadic.h"
#include "gtest/gtest.h"
#include <cmath>
#include <numeric>

using namespace mlir;
using namespace tessera::testing;

namespace {

std::string type(ArrayRef<int64_t> shape, StringRef element) {
  std::string text = "tensor<";
  for (int64_t size : shape)
    text += std::to_string(size) + "x";
  return text + element.str() + ">";
}

/// Integers in [low, high).
Tensor drawIds(ArrayRef<int64_t> shape, unsigned seed, int low, int high) {
  Tensor ids = draw(shape, seed, low, high);
  for (double &id : ids.data)
    id = std::floor(id);
  return ids;
}

/// Positions of a row's elements, greatest first, equal ones in order.
std::vector<int64_t> sorted(ArrayRef<double> row) {
  std::vector<int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  llvm::sort(order, [&](int64_t a, int64_t b) {
    return row[a] > row[b] || (row[a] == row[b] && a < b);
  });
  return order;
}

Tensor topK(const Tensor &scores, int64_t k) {
  SmallVector<int64_t> shape(scores.shape);
  shape.back() = k;
  return evaluate(llvm::formatv("func.func @f(%s: {0}) -> {1} {{ %i = "
                                "graph.top_k %s : ({0}) -> {1} return %i : "
                                "{1} }",
                                type(scores.shape, "f64"), type(shape, "i32")),
                  {scores})
      .at(0);
}

TEST(GraphRouting, TopKIsASortWithTiesInOrder) {
  // Few values, so that there are ties.
  Tensor scores = drawIds({6, 2, 9}, 1, 0, 4);
  for (int64_t k : {1, 4, 9}) {
    Tensor indices = topK(scores, k);
    for (int64_t row = 0; row < 12; ++row) {
      auto order = sorted(ArrayRef(scores.data).slice(row * 9, 9));
      for (int64_t j = 0; j < k; ++j)
        EXPECT_EQ(indices.data[row * k + j], order[j])
            << "row " << row << ", " << j;
    }
  }
}

TEST(GraphRouting, TopKOfNoNumbersStaysInTheRow) {
  Tensor scores({2, 5}, {NAN, 1, NAN, 3, 2, NAN, NAN, NAN, NAN, NAN});
  Tensor indices = topK(scores, 5);
  for (double index : indices.data)
    EXPECT_TRUE(index >= -1 && index < 5) << index;
}

TEST(GraphRouting, PickTakesNothingFromOutside) {
  Tensor x = draw({3, 4}, 2), at({3, 2}, {0, 3, -1, 2, 4, 4});
  Tensor y =
      evaluate("func.func @f(%x: tensor<3x4xf64>, %i: tensor<3x2xi32>) "
               "-> tensor<3x2xf64> { %y = graph.take_along_axis %x at %i : "
               "(tensor<3x4xf64>, tensor<3x2xi32>) -> tensor<3x2xf64> "
               "return %y : tensor<3x2xf64> }",
               {x, at})
          .at(0);
  EXPECT_EQ(y.data,
            (std::vector<double>{x.data[0], x.data[3], 0, x.data[6], 0, 0}));
}

// One chunk, several whole ones, and several of which the last is short.
const int64_t kLengths[] = {1, 60, 512, 700};

TEST(GraphRouting, RanksCountEntriesBefore) {
  constexpr int64_t kGroups = 5;
  for (int64_t n : kLengths) {
    Tensor ids = drawIds({2, n}, 3, -1, kGroups);
    std::string t = type({2, n}, "i32");
    Tensor ranks = evaluate(llvm::formatv("func.func @f(%i: {0}) -> {0} {{ %r "
                                          "= graph.rank_in_group %i groups 5 "
                                          ": ({0}) -> {0} return %r : {0} }",
                                          t),
                            {ids})
                       .at(0);
    for (int64_t row = 0; row < 2; ++row) {
      std::vector<int64_t> counts(kGroups);
      for (int64_t i = 0; i < n; ++i) {
        auto id = static_cast<int64_t>(ids.at({row, i}));
        if (id >= 0)
          EXPECT_EQ(ranks.at({row, i}), counts[id]++) << n << ": " << i;
      }
    }
  }
}

TEST(GraphRouting, RanksByScoresAreASortOfEachGroup) {
  constexpr int64_t n = 40;
  Tensor ids = drawIds({2, n}, 4, -1, 3), scores = drawIds({2, n}, 5, 0, 6);
  std::string t = type({2, n}, "i32"), f = type({2, n}, "f64");
  Tensor ranks =
      evaluate(llvm::formatv("func.func @f(%i: {0}, %s: {1}) -> {0} {{ %r = "
                             "graph.rank_in_group %i by %s groups 3 : ({0}, "
                             "{1}) -> {0} return %r : {0} }",
                             t, f),
               {ids, scores})
          .at(0);
  for (int64_t row = 0; row < 2; ++row) {
    std::vector<int64_t> counts(3);
    for (int64_t i : sorted(ArrayRef(scores.data).slice(row * n, n))) {
      auto id = static_cast<int64_t>(ids.at({row, i}));
      if (id >= 0)
        EXPECT_EQ(ranks.at({row, i}), counts[id]++) << row << ", " << i;
    }
  }
}

TEST(GraphRouting, GroupsAreRunsInOrder) {
  constexpr int64_t kGroups = 7;
  for (int64_t n : kLengths) {
    // Ids of no group on both sides.
    Tensor ids = drawIds({n, 1}, 6, -2, kGroups + 1);
    std::string t = type({n, 1}, "i32");
    Tensors results = evaluate(
        llvm::formatv("func.func @f(%i: {0}) -> (tensor<8xi32>, {0}) {{ %o, %p "
                      "= graph.group_rows %i : ({0}) -> (tensor<8xi32>, {0}) "
                      "return %o, %p : tensor<8xi32>, {0} }",
                      t),
        {ids});
    ASSERT_EQ(results.size(), 2u);
    std::vector<double> offsets{0}, slots(n, -1);
    double next = 0;
    for (int64_t g = 0; g < kGroups; ++g) {
      for (int64_t i = 0; i < n; ++i)
        if (ids.data[i] == static_cast<double>(g))
          slots[i] = next++;
      offsets.push_back(next);
    }
    EXPECT_EQ(results[0].data, offsets) << n;
    EXPECT_EQ(results[1].data, slots) << n;
  }
}

const Tensor kPlaces({3, 2}, {4, 0, -1, 2, 5, -3});

TEST(GraphRouting, RowsGoToTheirPlaces) {
  Tensor x = draw({3, 4}, 7), w = draw({3, 2}, 8), expected({7, 4});
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t j = 0; j < 2; ++j)
      for (int64_t i = 0; i < 4; ++i)
        if (kPlaces.at({t, j}) >= 0)
          expected.at({static_cast<int64_t>(kPlaces.at({t, j})), i}) =
              w.at({t, j}) * x.at({t, i});
  Tensor y =
      evaluate("func.func @f(%x: tensor<3x4xf64>, %p: tensor<3x2xi32>, %w: "
               "tensor<3x2xf64>) -> tensor<7x4xf64> { %y = "
               "graph.dispatch_rows %x slots %p weights %w : "
               "(tensor<3x4xf64>, tensor<3x2xi32>, tensor<3x2xf64>) -> "
               "tensor<7x4xf64> return %y : tensor<7x4xf64> }",
               {x, kPlaces, w})
          .at(0);
  EXPECT_EQ(y.data, expected.data);
}

TEST(GraphRouting, RowsComeBackWithTheirWeights) {
  // What no token has a place for, and what weighs nothing that exists, is NaN.
  Tensor rows = draw({7, 4}, 9), w = draw({3, 2}, 10), expected({3, 4});
  for (int64_t row : {1, 3, 6})
    for (int64_t i = 0; i < 4; ++i)
      rows.at({row, i}) = NAN;
  w.at({1, 0}) = NAN;
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t j = 0; j < 2; ++j)
      for (int64_t i = 0; i < 4; ++i)
        if (kPlaces.at({t, j}) >= 0)
          expected.at({t, i}) +=
              w.at({t, j}) *
              rows.at({static_cast<int64_t>(kPlaces.at({t, j})), i});
  Tensor y =
      evaluate("func.func @f(%x: tensor<7x4xf64>, %p: tensor<3x2xi32>, %w: "
               "tensor<3x2xf64>) -> tensor<3x4xf64> { %y = "
               "graph.combine_rows %x slots %p weights %w : "
               "(tensor<7x4xf64>, tensor<3x2xi32>, tensor<3x2xf64>) -> "
               "tensor<3x4xf64> return %y : tensor<3x4xf64> }",
               {rows, kPlaces, w})
          .at(0);
  for (int64_t i = 0; i < y.size(); ++i)
    EXPECT_NEAR(y.data[i], expected.data[i], 1e-14) << i;
}

} // namespace
