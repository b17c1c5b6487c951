// The solver's problem: one strategy for each node, at the least sum of node
// and edge costs, with memory in use below a limit at all times (the problem of
// google/iopddl and of the sharding search).
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::solver {

/// In the caller's unit, never negative. kInfinite and above mean "not
/// allowed". Sums of allowed costs must be less than half of that; they are
/// exact below 2^53.
using Cost = std::int64_t;
inline constexpr Cost kInfinite = 1'000'000'000'000'000'000;

/// A sum that stays at kInfinite once it is there.
constexpr Cost saturatingAdd(Cost a, Cost b) {
  return a >= kInfinite - b ? kInfinite : a + b;
}

/// A choice among strategies.
struct Node {
  /// Live at the times begin <= t < end; never live if the two are equal.
  std::int64_t begin = 0, end = 0;
  /// One entry a strategy, at least one.
  std::vector<Cost> costs;
  /// Memory in use while live, one entry a strategy, never negative.
  std::vector<std::int64_t> usages;
};

/// The cost of pairs of strategies of two nodes.
struct Edge {
  /// Indices of two different nodes. Edges between the same two add up.
  int from = 0, to = 0;
  /// Row-major [strategies of from][strategies of to].
  std::vector<Cost> costs;
};

struct Problem {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  /// The most memory in use at any time; negative: no limit.
  std::int64_t usageLimit = -1;
};

/// The cost and memory of a choice.
struct Evaluation {
  /// kInfinite if a strategy or a pair is chosen that is not allowed.
  Cost cost = 0;
  /// The most memory in use at one time, and the first such time.
  std::int64_t peakUsage = 0, peakTime = 0;
  /// Everything chosen is allowed, and the peak is within the limit.
  bool feasible = false;
};

/// Checks sizes, indices and signs as the comments above say, and that sums of
/// usages cannot overflow. Errors name the node or edge.
Status validate(const Problem &problem);

/// `choice` has one strategy a node; the problem is valid.
Evaluation evaluate(const Problem &problem, std::span<const int> choice);

} // namespace tessera::solver
