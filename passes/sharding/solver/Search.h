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
  Search(const Model &model, std::uint64_t seed, std::vector<int> start);
  /// Continues from the state of `other`; `model` is a reduction of its model.
  Search(const Model &model, const Search &other);

  /// Takes that many steps, or fewer if `stop` says so between two. A step is
  /// one neighbourhood, solved a few times at changing prices.
  void advance(std::uint64_t steps, const std::function<bool()> &stop);

  /// The best choice that fits; none is known at first.
  const std::optional<Incumbent> &best() const { return found; }
  /// Continues from another searcher's choice if that is better.
  void adopt(const Incumbent &other);
  /// Tries every choice if there are few, or if one elimination does that.
  void enumerate();
  /// No choice that fits costs less; starts at minus infinity.
  double lowerBound() const { return bound; }
  /// The best is an optimum: no cheaper one is within half a unit.
  bool optimal() const { return found && found->cost - bound < 0.5; }

private:
  /// A state of the search.
  struct State {
    std::vector<int> values;
    double cost;
    UsageProfile profile;
  };
  State at(std::vector<int> values) const;
  /// Updates cost and profile of changed values, starting from those of `now`.
  void look(State &state) const;
  /// Remembers a choice that fits and costs less than the best.
  void offer(const State &state);
  std::vector<int> differences(std::span<const int> values) const;
  void settleIfEmpty();
  void eliminateAll();

  void step();
  bool roams() const;
  bool accepts(const State &next);
  void passStep();
  void startAfresh(std::size_t limit);
  void neighbourhoodStep();

  // Each changes values and returns the region in which it did.
  std::vector<int> proposeLed(std::size_t limit, std::vector<int> &other);
  std::vector<int> proposeWide(std::size_t limit, std::vector<int> &other);
  std::vector<int> proposeFresh(std::size_t limit, std::vector<int> &other);
  std::vector<int> pickRegion();
  std::size_t tableLimit();
  std::size_t randomSize(double least, double most);

  const Model &model;
  Random random;
  Prices prices;
  std::vector<double> unary; // with prices
  std::vector<int> all;
  State now;
  /// Whether memory was within bounds once while the search roamed.
  bool settled = false;
  std::optional<Incumbent> found;
  double bound;
  std::uint64_t taken = 0; // steps
};

} // namespace tessera::solver
