// Costs of ops against counts made by hand.
#include "test/support/GraphTesting.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace tessera::graph;
using namespace tessera::testing;

namespace {

// Flops and bytes of the first op of @f.
std::pair<int64_t, int64_t> costOf(const std::string &text) {
  OwningOpRef<ModuleOp> module = parse(text);
  if (!module) {
    ADD_FAILURE() << text;
    return {};
  }
  auto op =
      cast<Costed>(module->lookupSymbol<func::FuncOp>("f").front().front());
  return {op.getFlops(), op.getBytes()};
}

using Cost = std::pair<int64_t, int64_t>;

TEST(GraphCost, Elementwise) {
  EXPECT_EQ(costOf("func.func @f(%x: tensor<3x4xbf16>, %y: tensor<3x4xbf16>) { "
                   "%z = graph.add %x, %y : tensor<3x4xbf16> return }"),
            Cost(12, 3 * 24));
  // A boolean takes a byte.
  EXPECT_EQ(costOf("func.func @f(%x: tensor<10xf32>) { %z = graph.compare %x "
                   "lt %x : tensor<10xf32> -> tensor<10xi1> return }"),
            Cost(10, 40 + 40 + 10));
}

TEST(GraphCost, Views) {
  EXPECT_EQ(costOf("func.func @f(%x: tensor<3x4xf32>) { %z = graph.transpose "
                   "%x [1, 0] : tensor<3x4xf32> -> tensor<4x3xf32> return }")
                .first,
            0);
}

TEST(GraphCost, Contraction) {
  EXPECT_EQ(
      costOf("func.func @f(%x: tensor<2x3x4xf32>, %y: tensor<4x5xf32>) { %z = "
             "graph.einsum \"btk,kn->btn\" %x, %y : (tensor<2x3x4xf32>, "
             "tensor<4x5xf32>) -> tensor<2x3x5xf32> return }"),
      Cost(2 * 30 * 4, 4 * (24 + 20 + 30)));
  EXPECT_EQ(costOf("func.func @f(%x: tensor<6x7xf32>) { %z = graph.reduce %x "
                   "sum dims [0] : tensor<6x7xf32> -> tensor<7xf32> return }")
                .first,
            42);
}

// Every row is counted, whoever's it is.
TEST(GraphCost, GroupedContractions) {
  EXPECT_EQ(costOf("func.func @f(%x: tensor<9x4xf32>, %w: tensor<3x4x5xf32>, "
                   "%o: tensor<4xi32>) { %y = graph.grouped_matmul %x, %w "
                   "groups %o : (tensor<9x4xf32>, tensor<3x4x5xf32>, "
                   "tensor<4xi32>) -> tensor<9x5xf32> return }"),
            Cost(2 * 9 * 4 * 5, 4 * (36 + 60 + 4 + 45)));
  EXPECT_EQ(costOf("func.func @f(%x: tensor<3x6x4xf32>, %y: tensor<3x6x5xf32>, "
                   "%c: tensor<3xi32>) { %z = graph.grouped_outer %x, %y "
                   "groups %c : (tensor<3x6x4xf32>, tensor<3x6x5xf32>, "
                   "tensor<3xi32>) -> tensor<3x4x5xf32> return }"),
            Cost(2 * 18 * 4 * 5, 4 * (72 + 90 + 3 + 60)));
}

// Of five queries over `keys`, from a `start` among them if there is one.
static int64_t attentionFlops(int64_t keys, bool hasStart,
                              const std::string &attrs) {
  std::string q = "tensor<2x5x4x8xf32>",
              k = "tensor<2x" + std::to_string(keys) + "x2x8xf32>",
              start = hasStart ? "start %s " : "",
              startType = hasStart ? ", tensor<i32>" : "";
  return costOf("func.func @f(%q: " + q + ", %k: " + k +
                ", %s: tensor<i32>) { %y, %l = graph.attention %q, %k, %k " +
                start + "scale 1.0 " + attrs + " : " + q + ", " + k + ", " + k +
                startType + " -> " + q + ", tensor<2x4x5xf32> return }")
      .first;
}

// Two products of 2 × head_dim for each visible pair, batch and head.
TEST(GraphCost, AttentionCountsVisiblePairs) {
  constexpr int64_t pair = 2 * 2 * 8 * 2 * 4;
  EXPECT_EQ(attentionFlops(5, false, ""), 25 * pair);
  EXPECT_EQ(attentionFlops(5, false, "{causal}"), 15 * pair);
  EXPECT_EQ(attentionFlops(5, false, "{causal, window = 2 : i64}"), 9 * pair);
  EXPECT_EQ(attentionFlops(5, false, "{window = 2 : i64}"),
            (5 + 5 + 4 + 3 + 2) * pair);
}

TEST(GraphCost, AttentionFromAnywhereCountsAllThatMayBeVisible) {
  constexpr int64_t pair = 2 * 2 * 8 * 2 * 4;
  EXPECT_EQ(attentionFlops(7, true, "{causal}"), 35 * pair);
  EXPECT_EQ(attentionFlops(7, true, "{causal, window = 2 : i64}"), 10 * pair);
}

TEST(GraphCost, LinearCrossEntropyCountsItsContractions) {
  const std::string head =
      "func.func @f(%x: tensor<4x8xf32>, %w: tensor<10x8xf32>, %t: "
      "tensor<4xi32>, %g: tensor<f32>) { ";
  EXPECT_EQ(
      costOf(head +
             "%y = graph.linear_cross_entropy %x, %w, %t : tensor<4x8xf32>, "
             "tensor<10x8xf32>, tensor<4xi32> -> tensor<f32> return }")
          .first,
      2 * 4 * 8 * 10);
  EXPECT_EQ(
      costOf(head +
             "%y:3 = graph.linear_cross_entropy_grad %x, %w, %t, %g : "
             "(tensor<4x8xf32>, tensor<10x8xf32>, tensor<4xi32>, tensor<f32>) "
             "-> (tensor<f32>, tensor<4x8xf32>, tensor<10x8xf32>) return }")
          .first,
      3 * 2 * 4 * 8 * 10);
}

TEST(GraphCost, ClusterIsTheSumOfItsOps) {
  EXPECT_EQ(costOf(R"(func.func @f(%x: tensor<4xf32>) {
    %y = graph.cluster elementwise "c" (%x) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>):
      %e = graph.exp %a : tensor<4xf32>
      %n = graph.neg %e : tensor<4xf32>
      graph.yield %n : tensor<4xf32>
    }
    return })"),
            Cost(8, 32));
}

} // namespace
