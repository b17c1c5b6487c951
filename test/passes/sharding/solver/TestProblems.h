// Small random problems, and the plainest way to solve them.
#pragma once
#include "passes/sharding/solver/Model.h"
#include "passes/sharding/solver/Problem.h"

#include <optional>

namespace tessera::solver {

struct TestShape {
  int nodes = 6, strategies = 4;
  double edges = 0.4;     // of all pairs
  double forbidden = 0.1; // of all costs
  bool limited = true;
};

inline Cost randomCost(Random &random, const TestShape &shape) {
  return random.unit() < shape.forbidden ? kInfinite
                                         : static_cast<Cost>(random.below(20));
}

inline Problem randomProblem(std::uint64_t seed, const TestShape &shape = {}) {
  Random random(seed);
  Problem problem;
  std::int64_t most = 0;
  for (int i = 0; i < shape.nodes; ++i) {
    Node node;
    node.begin = static_cast<std::int64_t>(random.below(8));
    node.end = node.begin + static_cast<std::int64_t>(random.below(8));
    const std::size_t strategies = 1 + random.below(shape.strategies);
    for (std::size_t s = 0; s < strategies; ++s) {
      node.costs.push_back(randomCost(random, shape));
      node.usages.push_back(static_cast<std::int64_t>(random.below(10)));
    }
    most += node.usages[0];
    problem.nodes.push_back(std::move(node));
  }
  for (int to = 1; to < shape.nodes; ++to)
    for (int from = 0; from < to; ++from)
      while (random.unit() < shape.edges) { // now and then two of the same
        Edge edge{from, to, {}};
        if (random.below(2))
          std::swap(edge.from, edge.to);
        const std::size_t entries =
            problem.nodes[from].costs.size() * problem.nodes[to].costs.size();
        for (std::size_t k = 0; k < entries; ++k)
          edge.costs.push_back(randomCost(random, shape));
        problem.edges.push_back(std::move(edge));
      }
  // From what nothing fits into to what everything does.
  if (shape.limited)
    problem.usageLimit =
        static_cast<std::int64_t>(random.unit() * static_cast<double>(most));
  return problem;
}

/// Calls `visit` with every combination of values below `sizes`.
template <typename Visit>
void forEachChoice(std::span<const int> sizes, Visit visit) {
  std::vector<int> choice(sizes.size());
  while (true) {
    visit(choice);
    std::size_t i = 0;
    for (; i < choice.size() && ++choice[i] == sizes[i]; ++i)
      choice[i] = 0;
    if (i == choice.size())
      return;
  }
}

/// The least cost of what is feasible.
inline std::optional<Cost> bruteForce(const Problem &problem) {
  std::vector<int> sizes;
  for (const Node &node : problem.nodes)
    sizes.push_back(static_cast<int>(node.costs.size()));
  std::optional<Cost> best;
  forEachChoice(sizes, [&](std::span<const int> choice) {
    const Evaluation evaluation = evaluate(problem, choice);
    if (evaluation.feasible && (!best || evaluation.cost < *best))
      best = evaluation.cost;
  });
  return best;
}

} // namespace tessera::solver
