#include "test/passes/sharding/solver/TestProblems.h"

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::solver;

namespace {

/// Two nodes that are live together at times 2 and 3 only.
Problem twoNodes() {
  Problem problem;
  problem.nodes = {{0, 4, {1, 2}, {10, 0}}, {2, 5, {0, 5, 7}, {4, 3, 0}}};
  problem.edges = {{0, 1, {0, 10, 20, 30, kInfinite, 50}}};
  problem.usageLimit = 13;
  return problem;
}

TEST(Problem, EvaluatesCostAndPeak) {
  const Problem problem = twoNodes();
  ASSERT_TRUE(validate(problem).ok());
  Evaluation evaluation = evaluate(problem, std::vector{0, 1});
  EXPECT_EQ(evaluation.cost, 1 + 5 + 10);
  EXPECT_EQ(evaluation.peakUsage, 13);
  EXPECT_EQ(evaluation.peakTime, 2);
  EXPECT_TRUE(evaluation.feasible);
  evaluation = evaluate(problem, std::vector{0, 0});
  EXPECT_EQ(evaluation.peakUsage, 14);
  EXPECT_FALSE(evaluation.feasible);
  evaluation = evaluate(problem, std::vector{1, 1});
  EXPECT_EQ(evaluation.cost, kInfinite);
  EXPECT_FALSE(evaluation.feasible);
}

TEST(Problem, AnIntervalEndsBeforeItsEnd) {
  Problem problem;
  problem.nodes = {{0, 3, {0}, {8}}, {3, 4, {0}, {8}}, {3, 3, {0}, {100}}};
  problem.usageLimit = 8;
  EXPECT_TRUE(evaluate(problem, std::vector{0, 0, 0}).feasible);
}

TEST(Problem, CostsSaturate) {
  EXPECT_EQ(saturatingAdd(kInfinite, kInfinite), kInfinite);
  EXPECT_EQ(saturatingAdd(kInfinite - 1, 1), kInfinite);
  EXPECT_EQ(saturatingAdd(kInfinite - 2, 1), kInfinite - 1);
}

/// What validate() says after a change to two good nodes.
template <typename Change> std::string diagnostic(Change change) {
  Problem problem = twoNodes();
  change(problem);
  return validate(problem).message();
}

TEST(Problem, InvalidOnesAreNamed) {
  EXPECT_EQ(diagnostic([](Problem &p) { p.nodes[1].costs = {}; }),
            "node 1 has no strategies");
  EXPECT_EQ(diagnostic([](Problem &p) { p.nodes[1].usages.pop_back(); }),
            "node 1 has 3 costs and 2 usages; one of each is needed for a "
            "strategy");
  EXPECT_EQ(diagnostic([](Problem &p) { p.nodes[0].end = -1; }),
            "node 0 is live from 0 to -1; times are natural numbers in order");
  EXPECT_EQ(diagnostic([](Problem &p) { p.nodes[0].usages[0] = -1; }),
            "node 0 has a negative cost or usage");
  EXPECT_EQ(diagnostic([](Problem &p) {
              p.nodes[0].usages[0] = p.nodes[1].usages[0] = INT64_MAX / 2 + 1;
            }),
            "usages up to node 1 sum to more than 63 bits; count memory in a "
            "larger unit");
  EXPECT_EQ(diagnostic([](Problem &p) { p.edges[0].to = 2; }),
            "edge 0 names node 2, but there are 2 nodes");
  EXPECT_EQ(diagnostic([](Problem &p) { p.edges[0].to = 0; }),
            "edge 0 joins node 0 with itself; add its costs to the node's");
  EXPECT_EQ(diagnostic([](Problem &p) { p.edges[0].costs.pop_back(); }),
            "edge 0 has 5 costs; its nodes have 2 and 3 strategies");
  EXPECT_EQ(diagnostic([](Problem &p) { p.edges[0].costs[0] = -1; }),
            "edge 0 has a negative cost");
}

} // namespace
