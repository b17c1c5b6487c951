// The core that remains after reductions, in arrays for the search. Internal to
// the solver.
#pragma once
#include "passes/sharding/solver/ReductionGraph.h"

namespace tessera::solver {

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA 2014): the same numbers everywhere.
class Random {
public:
  explicit Random(std::uint64_t seed) : state(seed) {}
  std::uint64_t operator()() {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  /// In [0, bound); bound > 0.
  std::size_t below(std::size_t bound) { return operator()() % bound; }
  /// In [0, 1).
  double unit() { return static_cast<double>(operator()() >> 11) * 0x1p-53; }

private:
  std::uint64_t state;
};

class Model {
public:
  struct Neighbour {
    int variable;
    /// Where its matrix starts in `matrices`: [values of variable][own values].
    std::size_t matrix;
  };
  struct Part {
    int begin, end;     // of times
    std::size_t usages; // where its usages start, one a value
  };

  Model() = default;
  explicit Model(const ReductionGraph &graph);

  int count() const { return static_cast<int>(sizes.size()); }
  int times() const { return static_cast<int>(capacity.size()); }
  const double *row(const Neighbour &neighbour, int value, int v) const {
    return &matrices[neighbour.matrix +
                     static_cast<std::size_t>(value) * sizes[v]];
  }

  /// The cost of a choice; kForbidden or more if it is not allowed.
  double cost(std::span<const int> values) const;
  /// The cost of `after` less that of `before`, which differ in `changed`: each
  /// index once.
  double difference(std::span<const int> changed, std::span<const int> before,
                    std::span<const int> after) const;

  std::vector<int> node; // of the problem
  std::vector<int> sizes;
  std::vector<std::size_t> first; // where a variable's values start in `unary`
  std::vector<double> unary;
  std::vector<int> strategy; // the node's strategy for each value
  std::vector<std::vector<Neighbour>> neighbours;
  std::vector<double> matrices;
  std::vector<std::vector<Part>> parts; // disjoint and in order
  std::vector<std::int64_t> usages;
  std::vector<std::int64_t> capacity; // one a time
  std::vector<std::int64_t> time;     // of the problem
  double constant = 0;
};

/// The memory that a choice of values uses at each time.
class UsageProfile {
public:
  UsageProfile(const Model &model, std::span<const int> values);
  /// Moves to `after` where `changed` says that it differs.
  void change(std::span<const int> changed, std::span<const int> before,
              std::span<const int> after);
  bool fits() const { return over == 0; }
  std::int64_t at(int time) const { return usage[time]; }

private:
  const Model *model; // never null; a profile can be assigned
  std::vector<std::int64_t> usage, changes;
  int over = 0; // how many times are above their capacity
};

} // namespace tessera::solver
