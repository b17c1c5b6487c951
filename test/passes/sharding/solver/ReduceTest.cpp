// Reductions against all choices of small problems.
#include "passes/sharding/solver/Reduce.h"
#include "test/passes/sharding/solver/TestProblems.h"

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::solver;

namespace {

bool never() { return false; }

/// The cheapest choice of the core that fits, as a choice of all nodes.
std::optional<std::vector<int>> solveCore(const ReductionGraph &graph) {
  const Model model(graph);
  std::optional<std::vector<int>> best;
  double bestCost = kForbidden;
  forEachChoice(model.sizes, [&](std::span<const int> values) {
    const double cost = model.cost(values);
    if (isForbidden(cost) || cost >= bestCost ||
        !UsageProfile(model, values).fits())
      return;
    bestCost = cost;
    best.emplace(graph.variables.size());
    for (int v = 0; v < model.count(); ++v)
      (*best)[model.node[v]] = model.strategy[model.first[v] + values[v]];
    graph.undo(*best);
  });
  return best;
}

class ReduceTest : public testing::TestWithParam<TestShape> {};

TEST_P(ReduceTest, KeepsAnOptimum) {
  int reduced = 0, infeasible = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const Problem problem = randomProblem(seed, GetParam());
    ASSERT_TRUE(validate(problem).ok());
    const std::optional<Cost> expected = bruteForce(problem);
    infeasible += !expected;
    StatusOr<ReductionGraph> graph = reduce(problem, true, never);
    const auto found = graph.ok() ? solveCore(*graph) : std::nullopt;
    ASSERT_EQ(found.has_value(), expected.has_value());
    if (!found)
      continue;
    const Evaluation evaluation = evaluate(problem, *found);
    EXPECT_TRUE(evaluation.feasible);
    EXPECT_EQ(evaluation.cost, *expected);
    reduced += graph->decisions.size() > 0;

    // Only what is as cheap is wanted; then only what is cheaper still.
    const auto optimum = static_cast<double>(*expected);
    ASSERT_TRUE(reduceBelow(*graph, optimum + 0.5, never).ok());
    const auto again = solveCore(*graph);
    ASSERT_TRUE(again);
    EXPECT_EQ(evaluate(problem, *again).cost, *expected);
    EXPECT_TRUE(evaluate(problem, *again).feasible);
    if (reduceBelow(*graph, optimum - 0.5, never).ok()) {
      EXPECT_GE(evaluate(problem, solveCore(*graph).value_or(*again)).cost,
                *expected);
    }
  }
  EXPECT_GT(reduced, 20);
  EXPECT_LT(infeasible, 380);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ReduceTest,
    testing::Values(TestShape{}, TestShape{.edges = 0.2, .forbidden = 0.3},
                    TestShape{.nodes = 8, .strategies = 3, .forbidden = 0.1},
                    TestShape{.nodes = 4, .strategies = 9, .edges = 0.6},
                    TestShape{.nodes = 7, .edges = 0.2, .limited = false}));

TEST(Reduce, NodesWithOneWayToFollowVanish) {
  // A star of ten, each of which must do as its centre does.
  Problem problem;
  for (int i = 0; i < 11; ++i)
    problem.nodes.push_back({i, 20, {i, 10 - i}, {i, 2 * i}});
  for (int i = 1; i < 11; ++i)
    problem.edges.push_back({0, i, {0, kInfinite, kInfinite, 0}});
  problem.usageLimit = 100;
  StatusOr<ReductionGraph> graph = reduce(problem, true, never);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(Model(*graph).count(), 0);
  std::vector<int> choice(11);
  graph->undo(choice);
  EXPECT_EQ(choice, std::vector<int>(11, 0));
}

TEST(Reduce, TreesWithoutMemoryVanish) {
  Problem problem = randomProblem(7, {.nodes = 1});
  problem.usageLimit = -1;
  Random random(3);
  for (int i = 1; i < 300; ++i) {
    problem.nodes.push_back({0, 9, {5, 3, 4}, {1, 2, 3}});
    Edge edge{static_cast<int>(random.below(i)), i, {}};
    for (std::size_t k = 0; k < 3 * problem.nodes[edge.from].costs.size(); ++k)
      edge.costs.push_back(static_cast<Cost>(random.below(10)));
    problem.edges.push_back(std::move(edge));
  }
  StatusOr<ReductionGraph> graph = reduce(problem, true, never);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(Model(*graph).count(), 0);
  std::vector<int> choice(300);
  graph->undo(choice);
  EXPECT_EQ(static_cast<double>(evaluate(problem, choice).cost),
            graph->constant);
}

TEST(Reduce, SaysWhyNothingFits) {
  Problem problem;
  problem.nodes = {{0, 4, {0, 0}, {5, 6}}, {3, 5, {0, 0}, {5, 7}}};
  problem.usageLimit = 8;
  EXPECT_EQ(reduce(problem, true, never).message(),
            "at time 3 at least 2 more than the usage limit is in use, "
            "whatever is chosen; raise the limit");
  problem.usageLimit = -1;
  problem.edges = {{0, 1, std::vector<Cost>(4, kInfinite)}};
  EXPECT_EQ(reduce(problem, true, never).message(),
            "every strategy of node 0 is ruled out by costs that are not "
            "allowed or by the usage limit");
}

} // namespace
