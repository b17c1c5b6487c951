#include "passes/sharding/solver/Elimination.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <set>

namespace tessera::solver {

/// Chooses the order: always the variable with the smallest table next.
class Elimination::Order {
public:
  Order(Elimination &plan, std::span<const int> candidates, std::size_t limit,
        Random &random);

private:
  void connect(std::span<const int> candidates);
  void enqueue(int v);
  void remove(int v);
  void eliminate(int v);
  int pickToLeaveOut();
  /// Entries of the table over the neighbours of v, capped.
  double tableSize(int v) const;

  Elimination &plan;
  Random &random;
  std::vector<std::vector<int>> neighbours; // sorted
  std::vector<double> size;                 // of those that are left
  std::set<std::pair<double, int>> queue;
};

Elimination::Order::Order(Elimination &plan, std::span<const int> candidates,
                          std::size_t limit, Random &random)
    : plan(plan), random(random), neighbours(plan.model.count()),
      size(plan.model.count(), 0) {
  connect(candidates);
  for (int v : candidates)
    enqueue(v);
  double total = 0;
  constexpr double kMostEntries = 1 << 24;
  while (!queue.empty()) {
    const auto [entries, v] = *queue.begin();
    if (entries <= static_cast<double>(limit) &&
        total + entries <= kMostEntries) {
      total += entries;
      eliminate(v);
      continue;
    }
    const int out = pickToLeaveOut();
    remove(out);
    plan.position[out] = kLeftOut;
    ++plan.leftOut;
  }
}

void Elimination::Order::connect(std::span<const int> candidates) {
  for (int v : candidates)
    size[v] = 1;
  for (int v : candidates) {
    for (const Model::Neighbour &neighbour : plan.model.neighbours[v])
      if (size[neighbour.variable] > 0)
        neighbours[v].push_back(neighbour.variable);
    std::ranges::sort(neighbours[v]);
  }
}

double Elimination::Order::tableSize(int v) const {
  double entries = 1;
  for (int u : neighbours[v])
    entries = std::min(entries * plan.model.sizes[u], 1e30);
  return entries;
}

void Elimination::Order::enqueue(int v) {
  size[v] = tableSize(v);
  queue.emplace(size[v], v);
}

/// Takes v out of the queue and out of its neighbours' lists.
void Elimination::Order::remove(int v) {
  queue.erase({size[v], v});
  size[v] = 0;
  for (int u : neighbours[v]) {
    std::vector<int> &list = neighbours[u];
    list.erase(std::ranges::lower_bound(list, v));
    queue.erase({size[u], u});
    enqueue(u);
  }
}

void Elimination::Order::eliminate(int v) {
  plan.position[v] = static_cast<int>(plan.order.size());
  plan.order.push_back(v);
  const std::vector<int> scope = std::move(neighbours[v]);
  queue.erase({size[v], v});
  size[v] = 0;
  std::vector<int> joined;
  for (int u : scope) {
    queue.erase({size[u], u});
    joined.clear();
    std::ranges::set_union(neighbours[u], scope, std::back_inserter(joined));
    std::erase_if(joined, [&](int w) { return w == u || w == v; });
    neighbours[u] = joined;
  }
  for (int u : scope)
    enqueue(u);
}

/// A few variables are drawn, and the one with the most neighbours goes:
/// hubs mostly, and not always the same.
int Elimination::Order::pickToLeaveOut() {
  constexpr int kDraws = 6;
  int best = -1;
  for (int draw = 0; draw < kDraws; ++draw) {
    // The queue has no random access; a random key does as well.
    const int start = static_cast<int>(random.below(size.size()));
    int v = start;
    while (size[v] == 0)
      v = v + 1 == static_cast<int>(size.size()) ? 0 : v + 1;
    if (best < 0 || neighbours[v].size() > neighbours[best].size())
      best = v;
  }
  return best;
}

Elimination::Elimination(const Model &model, std::span<const int> candidates,
                         std::size_t limit, Random &random)
    : model(model), position(model.count(), kOutside) {
  Order(*this, candidates, limit, random);
  // Tables that await their variable, by position in the order.
  std::vector<std::vector<std::size_t>> tablesOf(order.size());
  steps.reserve(order.size());
  for (std::size_t at = 0; at < order.size(); ++at)
    addStep(at, tablesOf);
}

void Elimination::addStep(std::size_t at,
                          std::vector<std::vector<std::size_t>> &tablesOf) {
  const int v = order[at];
  Step step{v, {}, {}, tables.size()};
  auto later = [&](int u) { return position[u] > static_cast<int>(at); };
  for (const Model::Neighbour &neighbour : model.neighbours[v])
    if (later(neighbour.variable))
      step.scope.push_back(neighbour.variable);
  for (std::size_t earlier : tablesOf[at])
    for (int u : steps[earlier].scope)
      if (u != v)
        step.scope.push_back(u);
  std::ranges::sort(step.scope, std::ranges::greater(),
                    [&](int u) { return position[u]; });
  step.scope.erase(std::ranges::unique(step.scope).begin(), step.scope.end());
  auto axisOf = [&](int u) {
    return std::ranges::find(step.scope, u) - step.scope.begin();
  };

  const std::size_t axes = step.scope.size();
  for (const Model::Neighbour &neighbour : model.neighbours[v]) {
    if (!later(neighbour.variable))
      continue;
    Factor factor{&model.matrices[neighbour.matrix], 0, 0, {}};
    factor.strides.resize(axes);
    factor.depth = static_cast<int>(axisOf(neighbour.variable));
    factor.strides[factor.depth] = model.sizes[v];
    step.factors.push_back(std::move(factor));
  }
  for (std::size_t earlier : tablesOf[at]) {
    Factor factor{nullptr, steps[earlier].table, -1, {}};
    factor.strides.resize(axes);
    std::size_t stride = model.sizes[v];
    const std::vector<int> &scope = steps[earlier].scope;
    assert(scope.back() == v && "the innermost axis is the next to go");
    for (std::size_t k = scope.size() - 1; k-- > 0;) {
      const auto axis = static_cast<int>(axisOf(scope[k]));
      factor.depth = std::max(factor.depth, axis);
      factor.strides[axis] = stride;
      stride *= model.sizes[scope[k]];
    }
    step.factors.push_back(std::move(factor));
  }
  std::ranges::sort(step.factors, {}, [](const Factor &factor) {
    return std::pair(factor.depth, factor.table);
  });

  std::size_t entries = 1;
  for (int u : step.scope)
    entries *= model.sizes[u];
  if (axes > 0)
    tablesOf[position[step.scope.back()]].push_back(at);
  tables.resize(tables.size() + entries);
  partial.resize(
      std::max(partial.size(), (axes + 1) * std::size_t(model.sizes[v])));
  steps.push_back(std::move(step));
}

double Elimination::run(std::span<const double> unary, std::span<int> values) {
  for (const Step &step : steps) {
    loadUnary(step, unary, values);
    fillTable(step);
  }
  double total = 0;
  for (std::size_t at = steps.size(); at-- > 0;) {
    loadUnary(steps[at], unary, values);
    const double cost = choose(steps[at], values);
    if (steps[at].scope.empty())
      total += cost;
  }
  return total;
}

void Elimination::runRelaxed(std::span<const double> unary,
                             std::span<int> values) {
  relaxed = true;
  run(unary, values);
  relaxed = false;
}

/// The first row of `partial`: the cost of each value given the variables that
/// keep theirs. A relaxed variable takes its best value for each neighbour, and
/// divides its own cost among its neighbours.
void Elimination::loadUnary(const Step &step, std::span<const double> unary,
                            std::span<const int> values) {
  const int v = step.variable, size = model.sizes[v];
  std::copy_n(&unary[model.first[v]], size, partial.begin());
  for (const Model::Neighbour &neighbour : model.neighbours[v]) {
    const int u = neighbour.variable;
    if (position[u] >= 0)
      continue;
    if (!relaxed || position[u] == kOutside) {
      const double *row = model.row(neighbour, values[u], v);
      for (int i = 0; i < size; ++i)
        partial[i] += row[i];
      continue;
    }
    const double share = 1.0 / static_cast<double>(model.neighbours[u].size());
    for (int i = 0; i < size; ++i) {
      double least = std::numeric_limits<double>::max();
      for (int j = 0; j < model.sizes[u]; ++j)
        least = std::min(least, model.row(neighbour, j, v)[i] +
                                    share * unary[model.first[u] + j]);
      partial[i] += least;
    }
  }
}

static void addRow(const double *a, const double *b, int count, double *out) {
  for (int i = 0; i < count; ++i)
    out[i] = a[i] + b[i];
}

static double leastSum(const double *a, const double *b, int count) {
  double least = a[0] + b[0];
  for (int i = 1; i < count; ++i)
    least = std::min(least, a[i] + b[i]);
  return least;
}

const double *Elimination::rowOf(const Factor &factor,
                                 std::span<const int> index) const {
  const double *row = factor.model ? factor.model : &tables[factor.table];
  for (std::size_t k = 0; k < index.size(); ++k)
    row += index[k] * factor.strides[k];
  return row;
}

/// Goes through all values of the scope. A factor is added once for each entry
/// along its own axes, at its deepest one, and not once an entry of the result.
void Elimination::fillTable(const Step &step) {
  const std::size_t axes = step.scope.size();
  const int size = model.sizes[step.variable];
  double *out = &tables[step.table];
  // Where the factors of each depth start; those without an axis come first.
  std::vector<std::size_t> firstAt(axes + 1);
  for (const Factor &factor : step.factors)
    for (auto deeper = static_cast<std::size_t>(factor.depth + 1);
         deeper <= axes; ++deeper)
      ++firstAt[deeper];
  for (std::size_t f = 0; f < firstAt[0]; ++f)
    addRow(partial.data(), rowOf(step.factors[f], {}), size, partial.data());
  if (axes == 0) {
    *out = *std::min_element(partial.begin(), partial.begin() + size);
    return;
  }
  std::vector<int> index(axes); // the innermost stays 0
  std::vector<const double *> sums(axes);
  sums[0] = partial.data();
  for (std::size_t axis = 0;;) { // the outermost whose sums are out of date
    for (; axis + 1 < axes; ++axis) {
      sums[axis + 1] = sums[axis];
      double *to = &partial[(axis + 1) * size];
      for (std::size_t f = firstAt[axis]; f < firstAt[axis + 1]; ++f) {
        addRow(sums[axis + 1], rowOf(step.factors[f], index), size, to);
        sums[axis + 1] = to;
      }
    }
    out = fillInner(step, firstAt[axes - 1], index, sums[axes - 1], out);
    for (axis = axes - 1; axis > 0; --axis) {
      if (++index[axis - 1] < model.sizes[step.scope[axis - 1]])
        break;
      index[axis - 1] = 0;
    }
    if (axis-- == 0)
      return;
  }
}

/// The entries along the innermost axis, which has a factor at least: the least
/// of `sum` and the factors from `first` on. Returns what follows them.
double *Elimination::fillInner(const Step &step, std::size_t first,
                               std::span<const int> index, const double *sum,
                               double *out) {
  const std::span factors = std::span(step.factors).subspan(first);
  const int size = model.sizes[step.variable];
  const std::size_t inner = index.size() - 1;
  const std::size_t entries = model.sizes[step.scope.back()];
  double *to = &partial[index.size() * size];
  rows.clear();
  for (const Factor &factor : factors)
    rows.push_back(rowOf(factor, index));
  for (std::size_t i = 0; i < entries; ++i) {
    const double *all = sum;
    for (std::size_t f = 0; f + 1 < factors.size(); ++f) {
      addRow(all, rows[f] + i * factors[f].strides[inner], size, to);
      all = to;
    }
    *out++ =
        leastSum(all, rows.back() + i * factors.back().strides[inner], size);
  }
  return out;
}

double Elimination::choose(const Step &step, std::span<int> values) {
  const int size = model.sizes[step.variable];
  std::vector<int> index;
  for (int u : step.scope)
    index.push_back(values[u]);
  for (const Factor &factor : step.factors)
    addRow(partial.data(), rowOf(factor, index), size, partial.data());
  const auto least = std::min_element(partial.begin(), partial.begin() + size);
  values[step.variable] = static_cast<int>(least - partial.begin());
  return *least;
}

} // namespace tessera::solver
