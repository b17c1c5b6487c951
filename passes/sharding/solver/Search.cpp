#include "passes/sharding/solver/Search.h"

#include "passes/sharding/solver/Proposal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tessera::solver {

/// Steps before neighbourhoods are searched.
static constexpr std::uint64_t kFirstPasses = 10;

Search::Search(const Model &model, std::uint64_t seed, std::vector<int> start)
    : model(model), random(seed), prices(model), unary(model.unary),
      all(model.count()), now(at(std::move(start))),
      bound(-std::numeric_limits<double>::infinity()) {
  std::iota(all.begin(), all.end(), 0);
  offer(now);
  settleIfEmpty();
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
      now(at(translate(other.model, other.now.values, model))),
      settled(other.settled), bound(other.bound), taken(other.taken) {
  std::iota(all.begin(), all.end(), 0);
  prices.adopt(other.prices);
  offer(now);
  if (other.found)
    offer(at(translate(other.model, other.found->values, model)));
  settleIfEmpty();
}

void Search::enumerate() {
  constexpr double kMost = 1 << 14;
  double choices = 1;
  for (int size : model.sizes)
    choices *= size;
  if (choices > kMost) {
    eliminateAll();
    return;
  }
  std::vector<int> tried(model.count());
  for (int carried = 0; carried < model.count();) {
    const double triedCost = model.cost(tried);
    if (!found || triedCost < found->cost)
      offer({tried, triedCost, UsageProfile(model, tried)});
    carried = 0;
    while (carried < model.count() && ++tried[carried] == model.sizes[carried])
      tried[carried++] = 0;
  }
  bound = found ? found->cost : kForbidden;
}

/// One elimination solves a core without memory limits if its tables are small.
void Search::eliminateAll() {
  constexpr std::size_t kTable = 1 << 14;
  if (model.times() > 0)
    return;
  Elimination plan(model, all, kTable, random);
  if (!plan.complete())
    return;
  std::vector<int> values = now.values;
  plan.run(model.unary, values);
  now = at(std::move(values));
  offer(now);
  bound = std::max(bound, now.cost);
}

/// Reductions may leave nothing to choose.
void Search::settleIfEmpty() {
  if (model.count() == 0)
    bound = model.constant;
}

Search::State Search::at(std::vector<int> values) const {
  const double cost = model.cost(values);
  UsageProfile profile(model, values);
  return {std::move(values), cost, std::move(profile)};
}

void Search::offer(const State &state) {
  if (!isForbidden(state.cost) && state.profile.fits() &&
      (!found || state.cost < found->cost))
    found = {state.values, state.cost};
}

void Search::adopt(const Incumbent &other) {
  if (found && found->cost <= other.cost)
    return;
  found = other;
  if (!roams())
    now = at(other.values);
}

void Search::advance(std::uint64_t steps, const std::function<bool()> &stop) {
  for (std::uint64_t i = 0;
       i < steps && !optimal() && model.count() > 0 && !stop(); ++i) {
    const bool before = roams();
    step();
    ++taken;
    if (before != roams() && found)
      now = at(found->values);
  }
}

/// The search alternates between roaming, where only prices limit memory, and
/// improving the best choice, where everything must fit.
bool Search::roams() const {
  constexpr std::uint64_t kTurn = 100;
  return !found || !settled || taken / kTurn % 2 == 0;
}

void Search::step() {
  if (taken < kFirstPasses)
    passStep();
  else
    neighbourhoodStep();
}

/// A pass over everything.
void Search::passStep() {
  const std::size_t limit = tableLimit();
  for (int v : all)
    prices.apply(v, unary);
  if (taken == 0)
    startAfresh(limit);
  Elimination plan(model, all, limit, random);
  std::vector<int> values = std::move(now.values);
  const double priced =
      plan.run(unary, values) + model.constant - prices.ofCapacity();
  if (plan.complete())
    bound = std::max(bound, priced);
  now = at(std::move(values));
  offer(now);
}

/// Takes a choice that does not depend on the start, if it is cheaper.
void Search::startAfresh(std::size_t limit) {
  std::vector<int> fresh = now.values;
  Elimination(model, all, limit, random).runRelaxed(unary, fresh);
  for (int pass = 0; pass < 3; ++pass)
    Elimination(model, all, limit, random).run(unary, fresh);
  if (model.cost(fresh) < now.cost)
    now = at(std::move(fresh));
}

/// Large tables if a pass over the core is cheap nevertheless.
std::size_t Search::tableLimit() {
  return randomSize(64, std::clamp(1.5e7 / model.count(), 4096.0, 65536.0));
}

/// Between two sizes, small ones as likely as large ones of twice the spread.
std::size_t Search::randomSize(double least, double most) {
  return static_cast<std::size_t>(
      least * std::pow(std::max(1.0, most / least), random.unit()));
}

std::vector<int> Search::differences(std::span<const int> other) const {
  std::vector<int> changed;
  for (int v : all)
    if (now.values[v] != other[v])
      changed.push_back(v);
  return changed;
}

/// Grows from a random variable to random neighbours.
std::vector<int> Search::pickRegion() {
  const auto count = static_cast<std::size_t>(model.count());
  const std::size_t size = randomSize(8, std::min<double>(count, 2000));
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

/// One variable takes a random value and some that depend on it follow; they
/// hold while the rest of the region answers.
std::vector<int> Search::proposeLed(std::size_t limit,
                                    std::vector<int> &other) {
  std::vector<int> region = pickRegion();
  int lead = region[0];
  for (int draw = 0; draw < 3; ++draw) {
    const int v = region[random.below(region.size())];
    if (model.neighbours[v].size() > model.neighbours[lead].size())
      lead = v;
  }
  const std::vector<int> held = spread(
      model, unary, lead, static_cast<int>(random.below(model.sizes[lead])),
      randomSize(1, 64), other);
  std::vector<bool> holds(model.count());
  for (int v : held)
    holds[v] = true;
  std::vector<int> others;
  std::ranges::copy_if(region, std::back_inserter(others),
                       [&](int v) { return !holds[v]; });
  for (int round = 0; round < 2; ++round)
    Elimination(model, others, limit, random).run(unary, other);
  others.insert(others.end(), held.begin(), held.end());
  return others;
}

/// One variable takes a random value and a whole region follows, then settles.
std::vector<int> Search::proposeWide(std::size_t limit,
                                     std::vector<int> &other) {
  const int lead = static_cast<int>(random.below(model.count()));
  std::vector<int> region = spread(
      model, unary, lead, static_cast<int>(random.below(model.sizes[lead])),
      randomSize(8, model.count()), other);
  for (int round = 0; round < 3; ++round)
    Elimination(model, region, limit, random).run(unary, other);
  return region;
}

/// Chooses a region from scratch, whatever its values are now.
std::vector<int> Search::proposeFresh(std::size_t limit,
                                      std::vector<int> &other) {
  std::vector<int> region = pickRegion();
  Elimination(model, region, limit, random).runRelaxed(unary, other);
  for (int round = 0; round < 2; ++round)
    Elimination(model, region, limit, random).run(unary, other);
  return region;
}

void Search::look(State &state) const {
  const std::vector<int> changed = differences(state.values);
  // A sum with a forbidden cost has lost the digits of the other costs.
  state.cost =
      isForbidden(now.cost)
          ? model.cost(state.values)
          : now.cost + model.difference(changed, now.values, state.values);
  state.profile = now.profile;
  state.profile.change(changed, now.values, state.values);
}

void Search::neighbourhoodStep() {
  Prices local = prices;
  if (random.below(2) == 0)
    local.scale(std::exp(2 * random.unit() - 1));
  for (int v : all)
    local.apply(v, unary);
  const std::size_t limit = tableLimit();
  State next = now;
  const std::size_t kind = random.below(5);
  const std::vector<int> region = kind == 0   ? proposeFresh(limit, next.values)
                                  : kind <= 2 ? proposeLed(limit, next.values)
                                              : proposeWide(limit, next.values);
  look(next);
  offer(next);
  if (!next.profile.fits() || next.cost >= now.cost) {
    std::vector<int> mixed = now.values;
    fuse(model, unary, next.values, 1 << 12, random, mixed);
    next.values = std::move(mixed);
    look(next);
    offer(next);
  }
  const double reach = std::max(1.0, isForbidden(now.cost) ? 0 : now.cost);
  // Prices move only where everything can follow them.
  const bool everywhere = roams() && random.below(3) == 0;
  const std::vector<int> &free = everywhere ? all : region;
  Elimination plan(model, free, limit, random);
  for (int round = 0; round < 4; ++round) {
    plan.run(unary, next.values);
    look(next);
    offer(next);
    if (next.profile.fits())
      break;
    local.move(next.profile, 0.05 * reach / local.slope(next.profile));
    for (int v : free)
      local.apply(v, unary);
  }
  const double slope = prices.slope(next.profile);
  const bool take = accepts(next);
  const double stride = !roams()      ? 0.0003
                        : !everywhere ? 0
                        : !settled    ? 0.08
                                      : 0.01;
  if (slope > 0 && taken >= kFirstPasses + 20)
    prices.move(next.profile, stride * reach / slope);
  settled = settled || next.profile.fits();
  if (take)
    now = std::move(next);
}

bool Search::accepts(const State &next) {
  const double slack = 0.003 * random.unit() * random.unit();
  if (roams())
    return next.cost + prices.ofUsage(next.profile) <=
           now.cost + prices.ofUsage(now.profile);
  return next.profile.fits() && next.cost <= now.cost * (1 + slack);
}

} // namespace tessera::solver
