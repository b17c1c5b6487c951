#include "passes/sharding/solver/Proposal.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

namespace tessera::solver {

namespace {

/// The variables that have followed, and the costs of the others given them.
class Spread {
public:
  Spread(const Model &model, std::span<const double> unary,
         std::span<int> values)
      : model(model), costs(unary.begin(), unary.end()), values(values),
        followed(model.count()), regret(model.count(), -1) {}

  void follow(int v, int value);
  /// The most urgent neighbour of those that have followed; -1: none.
  int next();
  int bestValue(int v) const;
  std::vector<int> order;

private:
  double regretOf(int v) const;

  const Model &model;
  std::vector<double> costs; // one a value
  std::span<int> values;
  std::vector<bool> followed;
  std::vector<double> regret;
  std::set<std::pair<double, int>> queue; // by negative regret
};

} // namespace

int Spread::bestValue(int v) const {
  const double *first = &costs[model.first[v]];
  return static_cast<int>(std::min_element(first, first + model.sizes[v]) -
                          first);
}

double Spread::regretOf(int v) const {
  double least = std::numeric_limits<double>::max(), second = least;
  for (int i = 0; i < model.sizes[v]; ++i) {
    const double cost = costs[model.first[v] + i];
    if (cost < least) {
      second = least;
      least = cost;
    } else {
      second = std::min(second, cost);
    }
  }
  return second - least;
}

void Spread::follow(int v, int value) {
  values[v] = value;
  followed[v] = true;
  order.push_back(v);
  for (const Model::Neighbour &neighbour : model.neighbours[v]) {
    const int u = neighbour.variable;
    if (followed[u])
      continue;
    if (regret[u] >= 0)
      queue.erase({-regret[u], u});
    for (int j = 0; j < model.sizes[u]; ++j)
      costs[model.first[u] + j] += model.row(neighbour, j, v)[value];
    regret[u] = regretOf(u);
    queue.emplace(-regret[u], u);
  }
}

int Spread::next() {
  if (queue.empty())
    return -1;
  const int v = queue.begin()->second;
  queue.erase(queue.begin());
  return v;
}

std::vector<int> spread(const Model &model, std::span<const double> unary,
                        int seed, int value, std::size_t most,
                        std::span<int> values) {
  Spread state(model, unary, values);
  state.follow(seed, value);
  while (state.order.size() < most) {
    const int v = state.next();
    if (v < 0)
      break;
    state.follow(v, state.bestValue(v));
  }
  return std::move(state.order);
}

/// The variables in which two choices differ, with two values each; their costs
/// given the other variables are in `unary`.
static Model differenceModel(const Model &model, std::span<const double> unary,
                             std::span<const int> values,
                             std::span<const int> other) {
  Model small;
  std::vector<int> index(model.count(), -1);
  for (int v = 0; v < model.count(); ++v)
    if (values[v] != other[v]) {
      index[v] = small.count();
      small.node.push_back(v);
      small.sizes.push_back(2);
    }
  small.neighbours.resize(small.sizes.size());
  for (int k = 0; k < small.count(); ++k) {
    const int v = small.node[k];
    const std::array<int, 2> mine = {values[v], other[v]};
    small.first.push_back(small.unary.size());
    std::array<double, 2> costs = {unary[model.first[v] + mine[0]],
                                   unary[model.first[v] + mine[1]]};
    for (const Model::Neighbour &neighbour : model.neighbours[v]) {
      const int u = neighbour.variable;
      if (index[u] < 0) {
        const double *row = model.row(neighbour, values[u], v);
        costs[0] += row[mine[0]];
        costs[1] += row[mine[1]];
        continue;
      }
      small.neighbours[k].push_back({index[u], small.matrices.size()});
      for (int theirs : {values[u], other[u]})
        for (int own : mine)
          small.matrices.push_back(model.row(neighbour, theirs, v)[own]);
    }
    small.unary.insert(small.unary.end(), costs.begin(), costs.end());
  }
  return small;
}

void fuse(const Model &model, std::span<const double> unary,
          std::span<const int> other, std::size_t limit, Random &random,
          std::span<int> values) {
  const Model small = differenceModel(model, unary, values, other);
  if (small.count() == 0)
    return;
  std::vector<int> all(small.count()), picked(small.count(), 0);
  std::iota(all.begin(), all.end(), 0);
  Elimination(small, all, limit, random).run(small.unary, picked);
  for (int k = 0; k < small.count(); ++k)
    if (picked[k] == 1)
      values[small.node[k]] = other[small.node[k]];
}

} // namespace tessera::solver
