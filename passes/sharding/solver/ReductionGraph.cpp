#include "passes/sharding/solver/ReductionGraph.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace tessera::solver {

static double toSearchCost(Cost cost) {
  return cost >= kInfinite ? kForbidden : static_cast<double>(cost);
}

static double sum(double a, double b) {
  return isForbidden(a) || isForbidden(b) ? kForbidden : a + b;
}

ReductionGraph::ReductionGraph(const Problem &problem) {
  variables.resize(problem.nodes.size());
  for (std::size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    Variable &variable = variables[i];
    strategyCounts.push_back(node.costs.size());
    for (std::size_t s = 0; s < node.costs.size(); ++s) {
      variable.cost.push_back(toSearchCost(node.costs[s]));
      variable.strategy.push_back(static_cast<int>(s));
    }
  }
  std::vector<double> costs;
  for (const Edge &edge : problem.edges) {
    costs.resize(edge.costs.size());
    std::ranges::transform(edge.costs, costs.begin(), toSearchCost);
    addEdge(edge.from, edge.to, costs);
  }
}

void ReductionGraph::addEdge(int v, int u, std::span<const double> costs) {
  const std::size_t rows = variables[v].size(), columns = variables[u].size();
  assert(costs.size() == rows * columns);
  auto [entry, added] =
      variables[v].edges.try_emplace(u, static_cast<int>(matrices.size()));
  const int edge = entry->second;
  if (added) {
    variables[u].edges.emplace(v, edge);
    matrices.push_back({v, u, columns, {costs.begin(), costs.end()}});
    return;
  }
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      double &cost = at(edge, v, i, j);
      cost = sum(cost, costs[i * columns + j]);
    }
}

void ReductionGraph::removeEdge(int v, int u) {
  const auto entry = variables[v].edges.find(u);
  matrices[entry->second].costs = {};
  variables[v].edges.erase(entry);
  variables[u].edges.erase(v);
}

void ReductionGraph::keepValues(int v, std::span<const int> kept) {
  Variable &variable = variables[v];
  auto keep = [&](auto &values) {
    std::remove_reference_t<decltype(values)> chosen;
    chosen.reserve(kept.size());
    for (int value : kept)
      chosen.push_back(values[value]);
    values = std::move(chosen);
  };
  for (auto [u, edge] : variable.edges) {
    const std::size_t columns = variables[u].size();
    Matrix smaller{v, u, columns, {}};
    smaller.costs.reserve(kept.size() * columns);
    for (int value : kept)
      for (std::size_t j = 0; j < columns; ++j)
        smaller.costs.push_back(at(edge, v, value, j));
    matrices[edge] = std::move(smaller);
  }
  keep(variable.cost);
  keep(variable.strategy);
  for (UsagePart &part : variable.parts)
    keep(part.usage);
  variable.partsStale = true;
}

void ReductionGraph::dropVariable(int v) {
  Variable &variable = variables[v];
  while (!variable.edges.empty())
    removeEdge(v, variable.edges.begin()->first);
  variable = Variable();
  variable.alive = false;
}

std::vector<int> ReductionGraph::positions(int v) const {
  std::vector<int> position(strategyCounts[v], -1);
  for (std::size_t i = 0; i < variables[v].size(); ++i)
    position[variables[v].strategy[i]] = static_cast<int>(i);
  return position;
}

void ReductionGraph::fix(int v) {
  Variable &variable = variables[v];
  assert(variable.size() == 1);
  decisions.push_back({.node = v, .table = {variable.strategy[0]}});
  constant += variable.cost[0];
  for (auto [u, edge] : variable.edges)
    for (std::size_t j = 0; j < variables[u].size(); ++j)
      variables[u].cost[j] = sum(variables[u].cost[j], at(edge, v, 0, j));
  for (const UsagePart &part : variable.parts) {
    certain[part.begin] += part.usage[0];
    certain[part.end] -= part.usage[0];
  }
  dropVariable(v);
}

void ReductionGraph::merge(int v, int u, std::span<const int> follows) {
  Variable &from = variables[v], &into = variables[u];
  Decision decision{
      .node = v, .scope = {u, -1}, .position = {positions(u), {}}};
  const int joint = from.edges.at(u);
  for (std::size_t i = 0; i < into.size(); ++i) {
    decision.table.push_back(from.strategy[follows[i]]);
    into.cost[i] = sum(into.cost[i],
                       sum(from.cost[follows[i]], at(joint, u, i, follows[i])));
  }
  decisions.push_back(std::move(decision));
  for (const UsagePart &part : from.parts) {
    UsagePart added{part.begin, part.end, {}};
    for (std::size_t i = 0; i < into.size(); ++i)
      added.usage.push_back(part.usage[follows[i]]);
    into.parts.push_back(std::move(added));
    into.partsStale = true;
  }
  std::vector<double> costs;
  for (auto [w, edge] : from.edges) {
    if (w == u)
      continue;
    costs.clear();
    for (std::size_t i = 0; i < into.size(); ++i)
      for (std::size_t j = 0; j < variables[w].size(); ++j)
        costs.push_back(at(edge, v, follows[i], j));
    addEdge(u, w, costs);
  }
  dropVariable(v);
}

void ReductionGraph::eliminate(int v) {
  const Variable &variable = variables[v];
  assert(variable.parts.empty() && variable.edges.size() <= 2);
  Decision decision{.node = v};
  std::array<int, 2> edges = {-1, -1};
  std::array<std::size_t, 2> sizes = {1, 1};
  int degree = 0;
  for (auto [u, edge] : variable.edges) {
    decision.scope[degree] = u;
    decision.position[degree] = positions(u);
    sizes[degree] = variables[u].size();
    edges[degree++] = edge;
  }
  std::vector<double> best;
  for (std::size_t i = 0; i < sizes[0]; ++i)
    for (std::size_t j = 0; j < sizes[1]; ++j) {
      std::size_t least = 0;
      double leastCost = 0;
      for (std::size_t k = 0; k < variable.size(); ++k) {
        double cost = variable.cost[k];
        if (degree > 0)
          cost = sum(cost, at(edges[0], v, k, i));
        if (degree > 1)
          cost = sum(cost, at(edges[1], v, k, j));
        if (k == 0 || cost < leastCost) {
          least = k;
          leastCost = cost;
        }
      }
      best.push_back(leastCost);
      decision.table.push_back(variable.strategy[least]);
    }
  const auto [a, b] = decision.scope;
  decisions.push_back(std::move(decision));
  dropVariable(v);
  if (degree == 0)
    constant += best[0];
  else if (degree == 1)
    for (std::size_t i = 0; i < best.size(); ++i)
      variables[a].cost[i] = sum(variables[a].cost[i], best[i]);
  else
    addEdge(a, b, best);
}

void ReductionGraph::undo(std::span<int> choice) const {
  for (std::size_t k = decisions.size(); k-- > 0;) {
    const Decision &decision = decisions[k];
    std::size_t at = 0;
    if (decision.scope[0] >= 0)
      at = decision.position[0][choice[decision.scope[0]]];
    if (decision.scope[1] >= 0) {
      const std::size_t columns = 1 + std::ranges::max(decision.position[1]);
      at = at * columns + decision.position[1][choice[decision.scope[1]]];
    }
    choice[decision.node] = decision.table[at];
  }
}

} // namespace tessera::solver
