// Elimination and mixtures against all values of small cores.
#include "passes/sharding/solver/Prices.h"
#include "passes/sharding/solver/Proposal.h"
#include "passes/sharding/solver/Reduce.h"
#include "test/passes/sharding/solver/TestProblems.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::solver;

namespace {

/// A problem as it is, without reductions.
Model unreduced(std::uint64_t seed, const TestShape &shape) {
  return Model(ReductionGraph(randomProblem(seed, shape)));
}

double leastCost(const Model &model) {
  double least = 1e300;
  forEachChoice(model.sizes, [&](std::span<const int> values) {
    least = std::min(least, model.cost(values));
  });
  return least;
}

std::vector<int> allOf(const Model &model) {
  std::vector<int> all(model.count());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<int> randomValues(const Model &model, Random &random) {
  std::vector<int> values;
  for (int size : model.sizes)
    values.push_back(static_cast<int>(random.below(size)));
  return values;
}

constexpr TestShape kDense = {
    .nodes = 7, .strategies = 4, .edges = 0.5, .forbidden = 0};

TEST(Elimination, FindsTheOptimum) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Model model = unreduced(seed, kDense);
    Random random(seed);
    Elimination plan(model, allOf(model), 1 << 20, random);
    ASSERT_TRUE(plan.complete());
    std::vector<int> values(model.count());
    const double cost = plan.run(model.unary, values);
    EXPECT_EQ(cost, leastCost(model));
    EXPECT_EQ(model.cost(values), cost);
  }
}

TEST(Elimination, SmallTablesLeaveVariablesAndNeverLose) {
  int incomplete = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Model model = unreduced(seed, kDense);
    Random random(seed);
    const std::vector<int> before = randomValues(model, random);
    Elimination plan(model, allOf(model), 8, random);
    std::vector<int> values = before;
    plan.run(model.unary, values);
    incomplete += !plan.complete();
    // No value of what was free is better, all else equal to what it is.
    for (int v = 0; v < model.count(); ++v) {
      if (!std::ranges::count(plan.variables(), v)) {
        EXPECT_EQ(values[v], before[v]);
        continue;
      }
      std::vector<int> other = values;
      for (other[v] = 0; other[v] < model.sizes[v]; ++other[v])
        EXPECT_GE(model.cost(other), model.cost(values));
    }
    EXPECT_LE(model.cost(values), model.cost(before));
    EXPECT_EQ(plan.complete(),
              plan.variables().size() == std::size_t(model.count()));
  }
  EXPECT_GT(incomplete, 50);
}

TEST(Elimination, WhatIsRelaxedOwesNothingToItsValues) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Model model = unreduced(seed, kDense);
    Random random(seed);
    Elimination plan(model, allOf(model), 8, random);
    std::vector<int> one = randomValues(model, random);
    std::vector<int> other = randomValues(model, random);
    plan.runRelaxed(model.unary, one);
    plan.runRelaxed(model.unary, other);
    for (int v : plan.variables())
      EXPECT_EQ(one[v], other[v]);
  }
}

TEST(Fuse, IsTheBestMixture) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Model model = unreduced(seed, kDense);
    Random random(seed);
    const std::vector<int> one = randomValues(model, random);
    const std::vector<int> other = randomValues(model, random);
    double least = 1e300;
    forEachChoice(std::vector<int>(model.count(), 2),
                  [&](std::span<const int> which) {
                    std::vector<int> mixed = one;
                    for (int v = 0; v < model.count(); ++v)
                      mixed[v] = which[v] ? other[v] : one[v];
                    least = std::min(least, model.cost(mixed));
                  });
    std::vector<int> values = one;
    fuse(model, model.unary, other, 1 << 10, random, values);
    EXPECT_EQ(model.cost(values), least);
  }
}

TEST(Spread, FollowersSuitTheirLeader) {
  // A chain in which neighbours want the same value.
  Problem problem;
  for (int i = 0; i < 20; ++i)
    problem.nodes.push_back({0, 0, {0, 0, 0}, {0, 0, 0}});
  for (int i = 0; i + 1 < 20; ++i)
    problem.edges.push_back({i, i + 1, {0, 9, 9, 9, 0, 9, 9, 9, 0}});
  const Model model{ReductionGraph(problem)};
  std::vector<int> values(20, 0);
  const std::vector<int> followed =
      spread(model, model.unary, 10, 2, 7, values);
  EXPECT_EQ(followed.size(), 7u);
  EXPECT_EQ(std::ranges::count(values, 2), 7);
  EXPECT_EQ(std::ranges::count(values, 0), 13);
}

TEST(Model, DifferencesAndProfilesFollowChanges) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Problem problem = randomProblem(seed, {.nodes = 8, .forbidden = 0});
    StatusOr<ReductionGraph> graph =
        reduce(problem, true, [] { return false; });
    if (!graph.ok())
      continue;
    const Model model(*graph);
    Random random(seed);
    const std::vector<int> before = randomValues(model, random);
    const std::vector<int> after = randomValues(model, random);
    std::vector<int> changed;
    for (int v = 0; v < model.count(); ++v)
      if (before[v] != after[v])
        changed.push_back(v);
    EXPECT_EQ(model.cost(before) + model.difference(changed, before, after),
              model.cost(after));
    UsageProfile profile(model, before);
    profile.change(changed, before, after);
    const UsageProfile fresh(model, after);
    EXPECT_EQ(profile.fits(), fresh.fits());
    for (int t = 0; t < model.times(); ++t)
      EXPECT_EQ(profile.at(t), fresh.at(t));
  }
}

TEST(Prices, BoundTheOptimumFromBelow) {
  int bounds = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Problem problem = randomProblem(seed, {.forbidden = 0});
    const std::optional<Cost> optimum = bruteForce(problem);
    StatusOr<ReductionGraph> graph =
        reduce(problem, true, [] { return false; });
    if (!optimum || !graph.ok())
      continue;
    const Model model(*graph);
    Random random(seed);
    Prices prices(model);
    std::vector<double> unary(model.unary);
    Elimination plan(model, allOf(model), 1 << 20, random);
    std::vector<int> values(model.count());
    for (int round = 0; round < 5; ++round) {
      for (int v = 0; v < model.count(); ++v)
        prices.apply(v, unary);
      const double bound =
          plan.run(unary, values) + model.constant - prices.ofCapacity();
      EXPECT_LE(bound, static_cast<double>(*optimum) + 1e-6);
      const UsageProfile profile(model, values);
      EXPECT_NEAR(bound,
                  model.cost(values) + prices.ofUsage(profile) -
                      prices.ofCapacity(),
                  1e-6);
      bounds += !profile.fits();
      prices.move(profile, 0.1);
    }
  }
  EXPECT_GT(bounds, 20);
}

} // namespace
