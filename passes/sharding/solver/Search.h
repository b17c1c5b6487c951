// One searcher: looks for values of a model's variables that cost less and fit
// into memory. Internal to the solver.
#pragma once
#include "passes/sharding/solver/Elimination.h"
#include "passes/sharding/solver/Prices.h"

#include <functional>
#include <optional>

namespace tessera::solver {

/// A choice that fits.
struct Incumbent {
  std::vector<int> values;
  double cost = 0;
};

class Search {
public:
  Search(const Model &model, std::uint64_t seed);
  /// Goes on where `other` stands; `model` is a reduction of the other's.
  Search(const Model &model, const Search &other);

  /// Takes that many steps, or fewer if `stop` says so between two. A step is
  /// one neighbourhood, solved a few times at changing prices.
  void advance(std::uint64_t steps, const std::function<bool()> &stop);

  /// The best choice that fits; none is known at first.
  const std::optional<Incumbent> &best() const { return found; }
  /// Goes on from somebody else's choice if that is better.
  void adopt(const Incumbent &other);
  /// No choice that fits costs less; starts at minus infinity.
  double lowerBound() const { return bound; }
  /// The best is an optimum: no cheaper one is within half a unit.
  bool optimal() const { return found && found->cost - bound < 0.5; }

private:
  void step();
  void priceStep();
  void neighbourhoodStep();
  std::vector<int> pickRegion();
  std::vector<int> differences(std::span<const int> values) const;
  /// Remembers `values` if they fit and cost less than the best.
  void offer(std::span<const int> values, double cost);

  const Model &model;
  Random random;
  Prices prices;
  std::vector<double> unary;
  std::vector<int> all;
  std::vector<int> values; // where the search stands
  double cost;
  UsageProfile profile;
  std::optional<Incumbent> found;
  double bound;
  std::uint64_t taken = 0; // steps
};

} // namespace tessera::solver
