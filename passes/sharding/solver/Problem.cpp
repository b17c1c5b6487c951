#include "passes/sharding/solver/Problem.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

namespace tessera::solver {

/// `total` is the largest usage of every node before this one, summed.
static Status validateNode(const Node &node, std::size_t index,
                           std::int64_t &total) {
  if (node.costs.empty())
    return Status::error("node {} has no strategies", index);
  if (node.costs.size() != node.usages.size())
    return Status::error("node {} has {} costs and {} usages; one of each is "
                         "needed for a strategy",
                         index, node.costs.size(), node.usages.size());
  if (node.begin < 0 || node.end < node.begin)
    return Status::error("node {} is live from {} to {}; times are natural "
                         "numbers in order",
                         index, node.begin, node.end);
  auto negative = [](std::int64_t value) { return value < 0; };
  if (std::ranges::any_of(node.costs, negative) ||
      std::ranges::any_of(node.usages, negative))
    return Status::error("node {} has a negative cost or usage", index);
  const std::int64_t most = *std::ranges::max_element(node.usages);
  if (most > std::numeric_limits<std::int64_t>::max() - total)
    return Status::error("usages up to node {} sum to more than 63 bits; count "
                         "memory in a larger unit",
                         index);
  total += most;
  return Status::success();
}

static Status validateEdge(const Problem &problem, std::size_t index) {
  const Edge &edge = problem.edges[index];
  const auto count = static_cast<std::int64_t>(problem.nodes.size());
  for (int node : {edge.from, edge.to})
    if (node < 0 || node >= count)
      return Status::error("edge {} names node {}, but there are {} nodes",
                           index, node, count);
  if (edge.from == edge.to)
    return Status::error("edge {} joins node {} with itself; add its costs to "
                         "the node's",
                         index, edge.from);
  const std::size_t rows = problem.nodes[edge.from].costs.size();
  const std::size_t columns = problem.nodes[edge.to].costs.size();
  if (edge.costs.size() != rows * columns)
    return Status::error("edge {} has {} costs; its nodes have {} and {} "
                         "strategies",
                         index, edge.costs.size(), rows, columns);
  if (std::ranges::any_of(edge.costs, [](Cost cost) { return cost < 0; }))
    return Status::error("edge {} has a negative cost", index);
  return Status::success();
}

Status validate(const Problem &problem) {
  if (problem.nodes.size() > std::numeric_limits<int>::max() ||
      problem.edges.size() > std::numeric_limits<int>::max())
    return Status::error("problem has {} nodes and {} edges; at most 2^31 - 1 "
                         "of each are supported",
                         problem.nodes.size(), problem.edges.size());
  std::int64_t total = 0;
  for (std::size_t i = 0; i < problem.nodes.size(); ++i)
    TESSERA_RETURN_IF_ERROR(validateNode(problem.nodes[i], i, total));
  for (std::size_t i = 0; i < problem.edges.size(); ++i)
    TESSERA_RETURN_IF_ERROR(validateEdge(problem, i));
  return Status::success();
}

static Cost costOf(const Problem &problem, std::span<const int> choice) {
  Cost cost = 0;
  for (std::size_t i = 0; i < problem.nodes.size(); ++i)
    cost = saturatingAdd(
        cost, std::min(problem.nodes[i].costs[choice[i]], kInfinite));
  for (const Edge &edge : problem.edges) {
    const std::size_t columns = problem.nodes[edge.to].costs.size();
    const std::size_t at = choice[edge.from] * columns + choice[edge.to];
    cost = saturatingAdd(cost, std::min(edge.costs[at], kInfinite));
  }
  return cost;
}

Evaluation evaluate(const Problem &problem, std::span<const int> choice) {
  assert(choice.size() == problem.nodes.size());
  Evaluation result;
  result.cost = costOf(problem, choice);

  std::vector<std::pair<std::int64_t, std::int64_t>> changes; // time, usage
  changes.reserve(2 * problem.nodes.size());
  for (std::size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    if (node.begin == node.end)
      continue;
    changes.emplace_back(node.begin, node.usages[choice[i]]);
    changes.emplace_back(node.end, -node.usages[choice[i]]);
  }
  // At equal times what ends is counted before what begins.
  std::ranges::sort(changes);
  std::int64_t usage = 0;
  for (auto [time, change] : changes) {
    usage += change;
    if (usage > result.peakUsage) {
      result.peakUsage = usage;
      result.peakTime = time;
    }
  }
  result.feasible =
      result.cost < kInfinite &&
      (problem.usageLimit < 0 || result.peakUsage <= problem.usageLimit);
  return result;
}

} // namespace tessera::solver
