// What the solver solves: one strategy a node, the least sum of node and edge
// costs, and never more memory in use than a limit (the problem of
// google/iopddl and of the sharding search).
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::solver {

/// In whatever unit the caller counts, never negative. kInfinite and above mean
/// "not allowed"; what is allowed should sum to less than half of that, and to
/// less than 2^53 to be told apart to the last unit.
using Cost = std::int64_t;
inline constexpr Cost kInfinite = 1'000'000'000'000'000'000;

/// A sum that stays at kInfinite once it is there.
constexpr Cost saturatingAdd(Cost a, Cost b) {
  return a >= kInfinite - b ? kInfinite : a + b;
}

/// Something that is done in one of several ways.
struct Node {
  /// Live at the times begin <= t < end; never live if the two are equal.
  std::int64_t begin = 0, end = 0;
  /// One entry a strategy, at least one.
  std::vector<Cost> costs;
  /// Memory in use while live, one entry a strategy, never negative.
  std::vector<std::int64_t> usages;
};

/// What the strategies of two nodes cost together.
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

/// What a choice costs and uses.
struct Evaluation {
  /// kInfinite if a strategy or a pair is chosen that is not allowed.
  Cost cost = 0;
  /// The most memory in use at one time, and the first such time.
  std::int64_t peakUsage = 0, peakTime = 0;
  /// Everything chosen is allowed, and the peak is within the limit.
  bool feasible = false;
};

/// Whether sizes, indices and signs are as the comments above say, and sums of
/// usages cannot overflow. Errors name the node or edge.
Status validate(const Problem &problem);

/// `choice` has one strategy a node; the problem is valid.
Evaluation evaluate(const Problem &problem, std::span<const int> choice);

} // namespace tessera::solver
