// Lagrange multipliers of the memory limit: the price of a unit of memory at
// each time. Internal to the solver.
#pragma once
#include "passes/sharding/solver/Model.h"

namespace tessera::solver {

class Prices {
public:
  explicit Prices(const Model &model)
      : model(model), price(model.times()), sums(model.times() + 1) {}

  /// Takes over the prices of a model with all of these times, and more.
  void adopt(const Prices &other);

  /// Adds `step` times the usage above the capacity, which may be negative; a
  /// price is never negative.
  void move(const UsageProfile &profile, double step);
  /// The squared length of move()'s direction.
  double slope(const UsageProfile &profile) const;
  void scale(double factor);
  /// The price of the capacity: cost at these prices less this is a lower
  /// bound.
  double ofCapacity() const;
  /// The price of the memory in use.
  double ofUsage(const UsageProfile &profile) const;

  /// Writes the costs of a variable's values, with the price of their memory,
  /// into `unary`.
  void apply(int variable, std::span<double> unary) const;

private:
  bool counts(const UsageProfile &profile, int time) const {
    return price[time] > 0 || profile.at(time) > model.capacity[time];
  }
  void sum();

  const Model &model;
  std::vector<double> price, sums; // sums of the prices before each time
};

} // namespace tessera::solver
