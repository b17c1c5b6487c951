#include "passes/sharding/solver/Solve.h"
#include "test/passes/sharding/solver/TestProblems.h"

#include <algorithm>

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::solver;

namespace {

class SolveTest : public testing::TestWithParam<TestShape> {};

TEST_P(SolveTest, FindsTheOptimumOfSmallProblems) {
  for (std::uint64_t seed = 1000; seed < 1150; ++seed) {
    SCOPED_TRACE(seed);
    const Problem problem = randomProblem(seed, GetParam());
    const std::optional<Cost> expected = bruteForce(problem);
    const StatusOr<Solution> solution = solve(problem, {.steps = 300});
    ASSERT_EQ(solution.ok(), expected.has_value());
    if (!expected)
      continue;
    EXPECT_EQ(solution->cost, *expected);
    const Evaluation evaluation = evaluate(problem, solution->choice);
    EXPECT_EQ(evaluation.cost, *expected);
    EXPECT_TRUE(evaluation.feasible);
    EXPECT_LE(solution->lowerBound, *expected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SolveTest,
    testing::Values(TestShape{}, TestShape{.nodes = 8, .strategies = 3},
                    TestShape{.nodes = 7, .edges = 0.7, .forbidden = 0.3},
                    TestShape{.nodes = 7, .edges = 0.8, .limited = false}));

TEST(Solve, WithoutALimitSpeaksOfNone) {
  Problem problem;
  for (int i = 0; i < 2; ++i)
    problem.nodes.push_back({0, 1, {5, 7}, {0, 0}});
  problem.edges.push_back({0, 1, {kInfinite, 3, 4, kInfinite}});
  std::vector<Cost> told;
  StatusOr<Solution> solution =
      solve(problem, {}, [&](Cost cost) { told.push_back(cost); });
  ASSERT_TRUE(solution.ok());
  EXPECT_EQ(solution->cost, 15);
  EXPECT_EQ(told, std::vector<Cost>{15});
  problem.edges[0].costs.assign(4, kInfinite);
  EXPECT_FALSE(solve(problem).ok());
  EXPECT_EQ(solve(problem).message().find("-1"), std::string::npos);
}

/// Layers of eight nodes that are joined at random, also to the last layer.
/// What costs less uses more, and on average 800 of 700 would be in use.
Problem layers(int count) {
  Random random(5);
  Problem problem;
  for (int layer = 0; layer < count; ++layer)
    for (int k = 0; k < 8; ++k) {
      Node node{layer, layer + 2, {}, {}};
      for (int s = 0; s < 5; ++s) {
        node.costs.push_back(static_cast<Cost>(random.below(100)));
        node.usages.push_back(100 - node.costs.back());
      }
      const int to = layer * 8 + k;
      problem.nodes.push_back(std::move(node));
      for (int from = std::max(0, to - 16); from < to; ++from) {
        if (random.below(3) != 0)
          continue;
        Edge edge{from, to, {}};
        for (int entry = 0; entry < 25; ++entry)
          edge.costs.push_back(static_cast<Cost>(random.below(60)));
        problem.edges.push_back(std::move(edge));
      }
    }
  problem.usageLimit = 700;
  return problem;
}

TEST(Solve, TheSameSeedAndStepsGiveTheSameChoice) {
  const Problem problem = layers(7);
  for (unsigned threads : {1U, 2U, 3U}) {
    const Options options = {.seed = 9, .steps = 200, .threads = threads};
    const StatusOr<Solution> one = solve(problem, options);
    const StatusOr<Solution> other = solve(problem, options);
    ASSERT_TRUE(one.ok()) << one.message();
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(one->choice, other->choice);
    EXPECT_EQ(one->lowerBound, other->lowerBound);
    EXPECT_TRUE(evaluate(problem, one->choice).feasible);
  }
}

TEST(Solve, ProgressFallsToTheResult) {
  std::vector<Cost> costs;
  const StatusOr<Solution> solution = solve(
      layers(7), {.steps = 200}, [&](Cost cost) { costs.push_back(cost); });
  ASSERT_TRUE(solution.ok());
  ASSERT_GT(costs.size(), 1u);
  EXPECT_TRUE(std::ranges::is_sorted(costs, std::ranges::greater()));
  EXPECT_EQ(costs.back(), solution->cost);
}

TEST(Solve, ChainsAreProvenOptimal) {
  Random random(2);
  Problem problem;
  std::vector<Cost> best = {3, 1, 2}; // of all up to here, by the last strategy
  problem.nodes.push_back({0, 1, best, {1, 1, 1}});
  for (int i = 1; i < 2000; ++i) {
    problem.nodes.push_back({i, i + 1, {0, 2, 1}, {1, 2, 3}});
    Edge edge{i - 1, i, {}};
    std::vector<Cost> next(3, kInfinite);
    for (int from = 0; from < 3; ++from)
      for (int to = 0; to < 3; ++to) {
        edge.costs.push_back(static_cast<Cost>(random.below(9)));
        next[to] = std::min(next[to], best[from] + edge.costs.back() +
                                          problem.nodes[i].costs[to]);
      }
    problem.edges.push_back(std::move(edge));
    best = next;
  }
  problem.usageLimit = 3;
  const StatusOr<Solution> solution = solve(problem);
  ASSERT_TRUE(solution.ok());
  EXPECT_EQ(solution->cost, *std::ranges::min_element(best));
  EXPECT_TRUE(solution->optimal());
}

// A micropanel of three by twelve, too many choices to try: without a limit one
// elimination with small tables says the optimum before any step.
TEST(Solve, MicropanelsAreProvenOptimalWithoutAStep) {
  constexpr int kWidth = 3, kLength = 12, kStrategies = 5;
  Random random(11);
  auto draw = [&](std::vector<Cost> &costs, int count) {
    for (int i = 0; i < count; ++i)
      costs.push_back(static_cast<Cost>(random.below(100)));
  };
  Problem problem;
  for (int at = 0; at < kWidth * kLength; ++at) {
    Node &node = problem.nodes.emplace_back();
    draw(node.costs, kStrategies);
    node.usages.assign(kStrategies, 0);
    for (int from : {at % kWidth ? at - 1 : -1, at - kWidth})
      if (from >= 0) {
        problem.edges.push_back({from, at, {}});
        draw(problem.edges.back().costs, kStrategies * kStrategies);
      }
  }
  const StatusOr<Solution> solution = solve(problem, {.steps = 0});
  ASSERT_TRUE(solution.ok());
  EXPECT_TRUE(solution->optimal());
  EXPECT_EQ(evaluate(problem, solution->choice).cost, solution->cost);
  // Row by row: the least cost down to each row of the micropanel.
  constexpr int kRow = kStrategies * kStrategies * kStrategies;
  auto strategy = [](int row, int k) {
    return row /
           (k == 0   ? 1
            : k == 1 ? kStrategies
                     : kStrategies * kStrategies) %
           kStrategies;
  };
  std::vector<Cost> least(kRow, 0);
  for (int layer = 0; layer < kLength; ++layer) {
    std::vector<Cost> next(kRow, kInfinite);
    for (int row = 0; row < kRow; ++row)
      for (int before = 0; before < (layer ? kRow : 1); ++before) {
        Cost cost = least[before];
        for (int k = 0; k < kWidth; ++k)
          cost += problem.nodes[layer * kWidth + k].costs[strategy(row, k)];
        for (const Edge &edge : problem.edges) {
          if (edge.to / kWidth != layer)
            continue;
          const int one = edge.from / kWidth == layer ? row : before;
          cost += edge.costs[strategy(one, edge.from % kWidth) * kStrategies +
                             strategy(row, edge.to % kWidth)];
        }
        next[row] = std::min(next[row], cost);
      }
    least = std::move(next);
  }
  EXPECT_EQ(solution->cost, *std::min_element(least.begin(), least.end()));
}

TEST(Solve, ADeadlineThatIsPastStillGivesAnAnswerOrAReason) {
  const Problem problem = layers(30);
  const StatusOr<Solution> solution =
      solve(problem, {.deadline = std::chrono::steady_clock::now()});
  if (solution.ok())
    EXPECT_TRUE(evaluate(problem, solution->choice).feasible);
  else
    EXPECT_EQ(solution.message(), "no choice within the usage limit of 700 was "
                                  "found; allow more time, or raise the limit");
}

TEST(Solve, NoNodes) {
  const StatusOr<Solution> solution = solve(Problem());
  ASSERT_TRUE(solution.ok()) << solution.message();
  EXPECT_EQ(solution->cost, 0);
  EXPECT_TRUE(solution->optimal());
}

TEST(Solve, InvalidProblemsAreRefused) {
  Problem problem;
  problem.nodes.emplace_back();
  EXPECT_EQ(solve(problem).message(), "node 0 has no strategies");
}

} // namespace
