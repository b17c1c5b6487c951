// The solver: exact reductions, then a search over what they leave
// (README.md).
#pragma once
#include "passes/sharding/solver/Problem.h"

#include <chrono>
#include <functional>
#include <limits>
#include <optional>

namespace tessera::solver {

struct Options {
  /// The same seed, steps and threads give the same solution if there is no
  /// deadline.
  std::uint64_t seed = 1;
  /// Steps of each thread at the most. One solves a part of the problem that is
  /// as large as the core, or small, a few times: 0.1 to 100 ms.
  std::uint64_t steps = 1000;
  /// When to return with the best choice so far. Checked between steps, after
  /// the reductions; the solution comes a few passes over the core later.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  unsigned threads = 1;
};

struct Solution {
  /// A strategy for each node.
  std::vector<int> choice;
  Cost cost = 0;
  /// No choice within the limit costs less, as far as proven.
  Cost lowerBound = 0;
  bool optimal() const { return cost <= lowerBound; }
};

/// Called with the cost of every better choice, by the thread that called
/// solve().
using Progress = std::function<void(Cost)>;

/// The cheapest choice that was found among those within the usage limit. An
/// error says what is wrong with the problem, that nothing is feasible, or that
/// nothing feasible was found.
StatusOr<Solution> solve(const Problem &problem, const Options &options = {},
                         const Progress &progress = {});

} // namespace tessera::solver
