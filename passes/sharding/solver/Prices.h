// Lagrange multipliers of the memory limit: what a unit of memory costs at each
// time. Internal to the solver.
#pragma once
#include "passes/sharding/solver/Model.h"

namespace tessera::solver {

class Prices {
public:
  explicit Prices(const Model &model)
      : model(model), price(model.times()), sums(model.times() + 1) {}

  /// Takes over the prices of a model with all of these times, and more.
  void adopt(const Prices &other);

  /// Adds `step` times what is used above the capacity, or below it; a price
  /// is never negative.
  void move(const UsageProfile &profile, double step);
  /// The squared length of the direction in which move() goes.
  double slope(const UsageProfile &profile) const;
  void scale(double factor);
  /// The price of the capacity: cost at these prices less this is a lower
  /// bound.
  double ofCapacity() const;
  /// The price of what is used.
  double ofUsage(const UsageProfile &profile) const;

  /// The costs of a variable's values with what they use, into its place in
  /// `unary`.
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
