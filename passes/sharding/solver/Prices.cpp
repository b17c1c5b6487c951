#include "passes/sharding/solver/Prices.h"

#include <algorithm>

namespace tessera::solver {

void Prices::adopt(const Prices &other) {
  std::size_t from = 0;
  for (int t = 0; t < model.times(); ++t) {
    while (other.model.time[from] != model.time[t])
      ++from;
    price[t] = other.price[from];
  }
  sum();
}

void Prices::move(const UsageProfile &profile, double step) {
  for (int t = 0; t < model.times(); ++t)
    if (counts(profile, t))
      price[t] = std::max(
          0.0, price[t] + step * static_cast<double>(profile.at(t) -
                                                     model.capacity[t]));
  sum();
}

double Prices::slope(const UsageProfile &profile) const {
  double slope = 0;
  for (int t = 0; t < model.times(); ++t)
    if (counts(profile, t)) {
      const auto over = static_cast<double>(profile.at(t) - model.capacity[t]);
      slope += over * over;
    }
  return slope;
}

void Prices::scale(double factor) {
  for (double &each : price)
    each *= factor;
  sum();
}

double Prices::ofCapacity() const {
  double total = 0;
  for (int t = 0; t < model.times(); ++t)
    total += price[t] * static_cast<double>(model.capacity[t]);
  return total;
}

double Prices::ofUsage(const UsageProfile &profile) const {
  double total = 0;
  for (int t = 0; t < model.times(); ++t)
    total += price[t] * static_cast<double>(profile.at(t));
  return total;
}

void Prices::apply(int variable, std::span<double> unary) const {
  const std::size_t first = model.first[variable];
  const int size = model.sizes[variable];
  std::copy_n(&model.unary[first], size, &unary[first]);
  for (const Model::Part &part : model.parts[variable]) {
    const double paid = sums[part.end] - sums[part.begin];
    if (paid == 0)
      continue;
    for (int i = 0; i < size; ++i)
      unary[first + i] +=
          paid * static_cast<double>(model.usages[part.usages + i]);
  }
}

void Prices::sum() {
  double total = 0;
  for (int t = 0; t < model.times(); ++t) {
    total += price[t];
    sums[t + 1] = total;
  }
}

} // namespace tessera::solver
