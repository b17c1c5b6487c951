#include "passes/sharding/solver/Search.h"

#include "passes/sharding/solver/Proposal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tessera::solver {

static std::vector<int> cheapestValues(const Model &model) {
  std::vector<int> values;
  for (int v = 0; v < model.count(); ++v) {
    const auto first =
        model.unary.begin() + static_cast<std::ptrdiff_t>(model.first[v]);
    values.push_back(static_cast<int>(
        std::min_element(first, first + model.sizes[v]) - first));
  }
  return values;
}

Search::Search(const Model &model, std::uint64_t seed)
    : model(model), random(seed), prices(model), unary(model.unary),
      all(model.count()), values(cheapestValues(model)),
      cost(model.cost(values)), profile(model, values),
      bound(-std::numeric_limits<double>::infinity()) {
  std::iota(all.begin(), all.end(), 0);
  offer(values, cost);
}

/// Values of the same strategies, the first where there is none.
static std::vector<int>
translate(const Model &from, std::span<const int> values, const Model &to) {
  std::vector<int> result;
  int u = 0;
  for (int v = 0; v < to.count(); ++v) {
    while (from.node[u] != to.node[v])
      ++u;
    const int strategy = from.strategy[from.first[u] + values[u]];
    const auto begin =
        to.strategy.begin() + static_cast<std::ptrdiff_t>(to.first[v]);
    const auto end = begin + to.sizes[v];
    const auto same = std::find(begin, end, strategy);
    result.push_back(same == end ? 0 : static_cast<int>(same - begin));
  }
  return result;
}

Search::Search(const Model &model, const Search &other)
    : model(model), random(other.random), prices(model), unary(model.unary),
      all(model.count()),
      values(translate(other.model,
                       other.found ? other.found->values : other.values,
                       model)),
      cost(model.cost(values)), profile(model, values), bound(other.bound) {
  std::iota(all.begin(), all.end(), 0);
  prices.adopt(other.prices);
  offer(values, cost);
}

void Search::offer(std::span<const int> candidate, double candidateCost) {
  if (!isForbidden(candidateCost) && profile.fits() &&
      (!found || candidateCost < found->cost))
    found = {{candidate.begin(), candidate.end()}, candidateCost};
}

void Search::adopt(const Incumbent &other) {
  if (found && found->cost <= other.cost)
    return;
  found = other;
  values = other.values;
  cost = other.cost;
  profile = UsageProfile(model, values);
}

void Search::advance(std::uint64_t steps, const std::function<bool()> &stop) {
  for (std::uint64_t i = 0; i < steps && !optimal() && !stop(); ++i, ++taken)
    step();
}

void Search::step() {
  if (taken < 20 || (!found && random.below(4) == 0))
    priceStep();
  else
    neighbourhoodStep();
}

/// A pass over everything at the prices, which then follow what is used.
void Search::priceStep() {
  const std::size_t limit = std::size_t(1) << (8 + random.below(9));
  Elimination plan(model, all, limit, random);
  for (int v : all)
    prices.apply(v, unary);
  const double priced =
      plan.run(unary, values) + model.constant - prices.ofCapacity();
  if (plan.complete())
    bound = std::max(bound, priced);
  cost = model.cost(values);
  profile = UsageProfile(model, values);
  offer(values, cost);
  const double reach = std::max(1.0, std::abs(isForbidden(cost) ? 0 : cost));
  const double slope = prices.slope(profile);
  if (slope > 0)
    prices.move(profile, 0.2 * reach / slope);
}

std::vector<int> Search::differences(std::span<const int> other) const {
  std::vector<int> changed;
  for (int v : all)
    if (values[v] != other[v])
      changed.push_back(v);
  return changed;
}

/// Grows from a random variable to random neighbours.
std::vector<int> Search::pickRegion() {
  const auto count = static_cast<std::size_t>(model.count());
  const double most = std::log(std::min<double>(count, 2000)),
               least = std::log(8.0);
  const auto size = static_cast<std::size_t>(
      std::exp(least + random.unit() * std::max(0.0, most - least)));
  if (size * 2 > count)
    return all;
  std::vector<bool> inside(count);
  std::vector<int> region, edge;
  while (region.size() < size) {
    if (edge.empty())
      edge.push_back(static_cast<int>(random.below(count)));
    std::swap(edge[random.below(edge.size())], edge.back());
    const int v = edge.back();
    edge.pop_back();
    if (inside[v])
      continue;
    inside[v] = true;
    region.push_back(v);
    for (const Model::Neighbour &neighbour : model.neighbours[v])
      if (!inside[neighbour.variable] && edge.size() < 4 * size)
        edge.push_back(neighbour.variable);
  }
  return region;
}

void Search::neighbourhoodStep() {
  const UsageProfile before = profile;
  std::vector<int> other = values;
  double otherCost = cost;
  Prices local = prices;
  if (random.below(2) == 0)
    local.scale(std::exp(2 * random.unit() - 1));
  auto look = [&] {
    const std::vector<int> changed = differences(other);
    otherCost = cost + model.difference(changed, values, other);
    profile = before;
    profile.change(changed, values, other);
    offer(other, otherCost);
  };
  const double reach = std::max(1.0, isForbidden(cost) ? 0 : cost);
  const std::size_t limit = std::size_t(1) << (6 + random.below(9));
  std::vector<int> region;
  if (random.below(2) == 0) {
    region = pickRegion();
    int held = -1;
    for (int draw = 0; draw < 3; ++draw) {
      const int v = region[random.below(region.size())];
      if (held < 0 ||
          model.neighbours[v].size() > model.neighbours[held].size())
        held = v;
    }
    other[held] = static_cast<int>(random.below(model.sizes[held]));
    std::vector<int> others = region;
    std::erase(others, held);
    for (int v : region)
      local.apply(v, unary);
    for (int round = 0; round < 2; ++round)
      Elimination(model, others, limit, random).run(unary, other);
  } else {
    for (int v : all)
      local.apply(v, unary);
    const int seed = static_cast<int>(random.below(model.count()));
    const auto most = static_cast<std::size_t>(
        std::exp(random.unit() * std::log(model.count())) + 1);
    region =
        spread(model, unary, seed,
               static_cast<int>(random.below(model.sizes[seed])), most, other);
    Elimination(model, region, limit, random).run(unary, other);
  }
  look();
  if (!(profile.fits() && otherCost < cost)) {
    std::vector<int> mixed = values;
    fuse(model, unary, other, 1 << 12, random, mixed);
    other = mixed;
    look();
  }
  Elimination plan(model, region, limit, random);
  for (int round = 0; round < 4; ++round) {
    plan.run(unary, other);
    look();
    if (profile.fits())
      break;
    local.move(profile, 0.05 * reach / prices.slope(profile));
    for (int v : region)
      local.apply(v, unary);
  }
  const double slope = prices.slope(profile);
  const bool better =
      found
          ? profile.fits() &&
                otherCost <= cost * (1 + 0.003 * random.unit() * random.unit())
          : otherCost + prices.ofUsage(profile) <=
                cost + prices.ofUsage(before);
  if (slope > 0)
    prices.move(profile, (found ? 0.0003 : 0.003) * reach / slope);
  if (better) {
    values = other;
    cost = otherCost;
  } else {
    profile = before;
  }
  if (random.below(500) == 0 && found) {
    values = found->values;
    cost = found->cost;
    profile = UsageProfile(model, values);
  }
}

} // namespace tessera::solver
