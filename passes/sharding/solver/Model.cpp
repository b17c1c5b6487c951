#include "passes/sharding/solver/Model.h"

#include <algorithm>

namespace tessera::solver {

Model::Model(const ReductionGraph &graph)
    : capacity(graph.capacity), time(graph.timePoints),
      constant(graph.constant) {
  std::vector<int> index(graph.variables.size(), -1);
  for (std::size_t v = 0; v < graph.variables.size(); ++v)
    if (graph.variables[v].alive) {
      index[v] = count();
      node.push_back(static_cast<int>(v));
      sizes.push_back(static_cast<int>(graph.variables[v].size()));
    }
  neighbours.resize(sizes.size());
  parts.resize(sizes.size());
  for (int i = 0; i < count(); ++i) {
    const int v = node[i];
    const ReductionGraph::Variable &variable = graph.variables[v];
    first.push_back(unary.size());
    unary.insert(unary.end(), variable.cost.begin(), variable.cost.end());
    strategy.insert(strategy.end(), variable.strategy.begin(),
                    variable.strategy.end());
    for (auto [u, edge] : variable.edges) {
      neighbours[i].push_back({index[u], matrices.size()});
      for (std::size_t k = 0; k < graph.variables[u].size(); ++k)
        for (std::size_t j = 0; j < variable.size(); ++j)
          matrices.push_back(graph.at(edge, v, j, k));
    }
    for (const UsagePart &part : variable.parts) {
      parts[i].push_back({part.begin, part.end, usages.size()});
      usages.insert(usages.end(), part.usage.begin(), part.usage.end());
    }
  }
}

double Model::cost(std::span<const int> values) const {
  double total = constant;
  for (int v = 0; v < count(); ++v) {
    total += unary[first[v] + values[v]];
    for (const Neighbour &neighbour : neighbours[v])
      if (neighbour.variable < v)
        total += row(neighbour, values[neighbour.variable], v)[values[v]];
  }
  return total;
}

double Model::difference(std::span<const int> changed,
                         std::span<const int> before,
                         std::span<const int> after) const {
  double total = 0;
  for (int v : changed) {
    total += unary[first[v] + after[v]] - unary[first[v] + before[v]];
    for (const Neighbour &neighbour : neighbours[v]) {
      const int u = neighbour.variable;
      // An edge between two that change is counted at the first of them.
      if (before[u] != after[u] && u < v)
        continue;
      total += row(neighbour, after[u], v)[after[v]] -
               row(neighbour, before[u], v)[before[v]];
    }
  }
  return total;
}

UsageProfile::UsageProfile(const Model &model, std::span<const int> values)
    : model(&model), usage(model.times()), changes(model.times() + 1) {
  for (int v = 0; v < model.count(); ++v)
    for (const Model::Part &part : model.parts[v]) {
      changes[part.begin] += model.usages[part.usages + values[v]];
      changes[part.end] -= model.usages[part.usages + values[v]];
    }
  std::int64_t sum = 0;
  for (int t = 0; t < model.times(); ++t) {
    usage[t] = sum += changes[t];
    over += usage[t] > model.capacity[t];
  }
  std::ranges::fill(changes, 0);
}

void UsageProfile::change(std::span<const int> changed,
                          std::span<const int> before,
                          std::span<const int> after) {
  int begin = model->times(), end = 0;
  for (int v : changed)
    for (const Model::Part &part : model->parts[v]) {
      const std::int64_t more = model->usages[part.usages + after[v]] -
                                model->usages[part.usages + before[v]];
      if (more == 0)
        continue;
      changes[part.begin] += more;
      changes[part.end] -= more;
      begin = std::min(begin, part.begin);
      end = std::max(end, part.end);
    }
  std::int64_t sum = 0;
  for (int t = begin; t < end; ++t) {
    sum += changes[t];
    changes[t] = 0;
    over -= usage[t] > model->capacity[t];
    usage[t] += sum;
    over += usage[t] > model->capacity[t];
  }
  if (begin < end)
    changes[end] = 0;
}

} // namespace tessera::solver
