#include "passes/sharding/solver/Reduce.h"

#include "passes/sharding/solver/MemoryTimes.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace tessera::solver {

namespace {

class Reducer {
public:
  Reducer(ReductionGraph &graph, double ceiling,
          const std::function<bool()> &stop)
      : graph(graph), ceiling(ceiling), stop(stop),
        waits(graph.variables.size()) {}

  void touch(int v) {
    if (!waits[v]) {
      waits[v] = true;
      queue.emplace(graph.variables[v].edges.size(), v);
    }
  }
  Status run();

private:
  using Variable = ReductionGraph::Variable;

  void touchNeighbours(int v) {
    for (auto [u, edge] : graph.variables[v].edges)
      touch(u);
  }
  /// Applies all reductions to `v`, and touches variables that may profit.
  Status visit(int v);
  bool dropForbidden(int v);
  void normalizeEdges(int v);
  void dropDominated(int v);
  bool dominates(const Variable &variable, int v, std::size_t better,
                 std::size_t worse) const;
  bool mergeIntoNeighbour(int v);
  bool mergeLeaf(int v);
  bool eliminateSmall(int v);
  bool forbidAbove(int v);

  ReductionGraph &graph;
  double ceiling;
  const std::function<bool()> &stop;
  /// By degree when touched: variables with many neighbours wait until their
  /// small neighbours are gone.
  std::set<std::pair<std::size_t, int>> queue;
  std::vector<bool> waits;
};

} // namespace

Status Reducer::run() {
  while (!queue.empty() && !stop()) {
    const int v = queue.begin()->second;
    queue.erase(queue.begin());
    waits[v] = false;
    if (graph.variables[v].alive)
      TESSERA_RETURN_IF_ERROR(visit(v));
  }
  return Status::success();
}

Status Reducer::visit(int v) {
  normalizeEdges(v);
  if (forbidAbove(v))
    normalizeEdges(v);
  if (dropForbidden(v))
    touchNeighbours(v);
  const Variable &variable = graph.variables[v];
  if (variable.partsStale && variable.size() > 0)
    normalizeParts(graph, v);
  if (variable.size() == 0)
    return Status::error("every strategy of node {} is ruled out by costs that "
                         "are not allowed or by the usage limit",
                         v);
  dropDominated(v);
  if (variable.size() == 1) {
    touchNeighbours(v);
    graph.fix(v);
    return Status::success();
  }
  if (!eliminateSmall(v) && !mergeLeaf(v))
    mergeIntoNeighbour(v);
  return Status::success();
}

/// Moves the least cost over a neighbour's values into the cost of v's value:
/// edges without any other cost vanish.
void Reducer::normalizeEdges(int v) {
  Variable &variable = graph.variables[v];
  std::vector<int> separable;
  for (auto [u, edge] : variable.edges) {
    const std::size_t columns = graph.variables[u].size();
    bool zero = true;
    for (std::size_t i = 0; i < variable.size(); ++i) {
      double least = kForbidden;
      for (std::size_t j = 0; j < columns; ++j)
        least = std::min(least, graph.at(edge, v, i, j));
      if (isForbidden(least)) {
        variable.cost[i] = kForbidden;
        continue;
      }
      variable.cost[i] += least;
      for (std::size_t j = 0; j < columns; ++j) {
        double &cost = graph.at(edge, v, i, j);
        if (!isForbidden(cost))
          cost -= least;
        zero &= cost == 0;
      }
    }
    if (zero)
      separable.push_back(u);
  }
  for (int u : separable) {
    graph.removeEdge(v, u);
    touch(u);
  }
}

/// Forbids values and pairs that, with the least cost of everything else, cost
/// more than the ceiling.
bool Reducer::forbidAbove(int v) {
  if (isForbidden(ceiling))
    return false;
  Variable &variable = graph.variables[v];
  const double least = std::ranges::min(variable.cost);
  if (isForbidden(least))
    return false;
  graph.constant += least;
  for (double &cost : variable.cost) {
    if (!isForbidden(cost))
      cost -= least;
    if (graph.constant + cost > ceiling)
      cost = kForbidden;
  }
  bool forbade = false;
  for (auto [u, edge] : variable.edges) {
    const Variable &other = graph.variables[u];
    const double rest = std::ranges::min(other.cost);
    for (std::size_t i = 0; i < variable.size(); ++i)
      for (std::size_t j = 0; j < other.size(); ++j) {
        double &cost = graph.at(edge, v, i, j);
        if (!isForbidden(cost) && graph.constant + variable.cost[i] + cost +
                                          std::max(rest, other.cost[j]) >
                                      ceiling) {
          cost = kForbidden;
          forbade = true;
          touch(u);
        }
      }
  }
  return forbade;
}

bool Reducer::dropForbidden(int v) {
  const Variable &variable = graph.variables[v];
  std::vector<int> kept;
  for (std::size_t i = 0; i < variable.size(); ++i)
    if (!isForbidden(variable.cost[i]))
      kept.push_back(static_cast<int>(i));
  if (kept.size() == variable.size())
    return false;
  graph.keepValues(v, kept);
  return true;
}

/// Whether `better` may replace `worse` in every solution: it never uses more,
/// and the sum of the most that it can lose at each edge is not above what it
/// gains (Goldstein's criterion of dead-end elimination).
bool Reducer::dominates(const Variable &variable, int v, std::size_t better,
                        std::size_t worse) const {
  for (const UsagePart &part : variable.parts)
    if (part.usage[better] > part.usage[worse])
      return false;
  double loss = variable.cost[better] - variable.cost[worse];
  for (auto [u, edge] : variable.edges) {
    double most = -kForbidden;
    for (std::size_t j = 0; j < graph.variables[u].size(); ++j) {
      const double before = graph.at(edge, v, worse, j);
      if (!isForbidden(before))
        most = std::max(most, graph.at(edge, v, better, j) - before);
    }
    loss += most;
    if (isForbidden(loss))
      return false;
  }
  return loss <= 0;
}

void Reducer::dropDominated(int v) {
  const Variable &variable = graph.variables[v];
  // Quadratic in values; where that is too much, the cheap values are tried as
  // the better ones.
  constexpr std::size_t kPairs = 1 << 16;
  std::vector<int> candidates(variable.size());
  std::iota(candidates.begin(), candidates.end(), 0);
  std::ranges::sort(candidates, {},
                    [&](int i) { return std::pair(variable.cost[i], i); });
  candidates.resize(std::min(
      candidates.size(), std::max<std::size_t>(8, kPairs / variable.size())));
  std::vector<bool> dropped(variable.size());
  for (std::size_t worse = 0; worse < variable.size(); ++worse)
    for (int better : candidates)
      if (better != static_cast<int>(worse) && !dropped[better] &&
          dominates(variable, v, better, worse)) {
        dropped[worse] = true;
        break;
      }
  std::vector<int> kept;
  for (std::size_t i = 0; i < variable.size(); ++i)
    if (!dropped[i])
      kept.push_back(static_cast<int>(i));
  if (kept.size() == variable.size())
    return;
  graph.keepValues(v, kept);
  touch(v);
  touchNeighbours(v);
}

/// For each value of u the only value of v that is allowed with it, if there is
/// exactly one each.
static std::optional<std::vector<int>> onlyAllowed(const ReductionGraph &graph,
                                                   int edge, int v, int u) {
  std::vector<int> follows(graph.variables[u].size(), -1);
  for (std::size_t j = 0; j < follows.size(); ++j) {
    for (std::size_t i = 0; i < graph.variables[v].size(); ++i)
      if (!isForbidden(graph.at(edge, v, i, j))) {
        if (follows[j] >= 0)
          return std::nullopt;
        follows[j] = static_cast<int>(i);
      }
    if (follows[j] < 0)
      return std::nullopt;
  }
  return follows;
}

bool Reducer::mergeIntoNeighbour(int v) {
  const Variable &variable = graph.variables[v];
  for (auto [u, edge] : variable.edges) {
    const std::size_t values = graph.variables[u].size();
    // Edges of v get as many rows as u has values; that must stay small.
    constexpr std::size_t kRows = 64;
    if (values < variable.size() ||
        (values > 2 * variable.size() && values > kRows &&
         variable.edges.size() > 1))
      continue;
    if (auto follows = onlyAllowed(graph, edge, v, u)) {
      // If each follows from the other, the one with fewer edges moves.
      if (values == variable.size() &&
          variable.edges.size() > graph.variables[u].edges.size() &&
          onlyAllowed(graph, edge, u, v)) {
        touch(u);
        continue;
      }
      touchNeighbours(v);
      graph.merge(v, u, *follows);
      return true;
    }
  }
  return false;
}

/// A variable with one neighbour follows from it if for every value of the
/// neighbour its cheapest value also uses the least memory.
bool Reducer::mergeLeaf(int v) {
  const Variable &variable = graph.variables[v];
  if (variable.edges.size() != 1)
    return false;
  const auto [u, edge] = *variable.edges.begin();
  std::vector<int> follows;
  for (std::size_t j = 0; j < graph.variables[u].size(); ++j) {
    auto cost = [&](std::size_t i) {
      return variable.cost[i] + graph.at(edge, v, i, j);
    };
    auto usesLess = [&](std::size_t a, std::size_t b) {
      return std::ranges::all_of(variable.parts, [&](const UsagePart &part) {
        return part.usage[a] <= part.usage[b];
      });
    };
    std::size_t best = 0;
    for (std::size_t i = 1; i < variable.size(); ++i)
      if (cost(i) < cost(best) || (cost(i) == cost(best) && usesLess(i, best)))
        best = i;
    for (std::size_t i = 0; i < variable.size(); ++i)
      if (!isForbidden(cost(i)) && !usesLess(best, i))
        return false;
    follows.push_back(static_cast<int>(best));
  }
  touch(u);
  graph.merge(v, u, follows);
  return true;
}

bool Reducer::eliminateSmall(int v) {
  const Variable &variable = graph.variables[v];
  constexpr std::size_t kTable = 1 << 14;
  if (!variable.parts.empty() || variable.edges.size() > 2)
    return false;
  std::size_t table = 1;
  for (auto [u, edge] : variable.edges)
    table *= graph.variables[u].size();
  if (table > kTable)
    return false;
  touchNeighbours(v);
  graph.eliminate(v);
  return true;
}

Status reduceBelow(ReductionGraph &graph, double ceiling,
                   const std::function<bool()> &stop) {
  Reducer reducer(graph, ceiling, stop);
  std::vector<int> changed;
  while (true) {
    const double before = graph.constant;
    for (std::size_t v = 0; v < graph.variables.size(); ++v)
      if (graph.variables[v].alive)
        reducer.touch(static_cast<int>(v));
    TESSERA_RETURN_IF_ERROR(reducer.run());
    changed.clear();
    TESSERA_RETURN_IF_ERROR(tightenTimes(graph, changed));
    if (graph.constant > ceiling)
      return Status::error("nothing costs at most {}", ceiling);
    // Each round raises the certain cost a little.
    const bool risen = !isForbidden(ceiling) &&
                       graph.constant - before > 1e-4 * (ceiling - before);
    if ((changed.empty() && !risen) || stop())
      return Status::success();
  }
}

StatusOr<ReductionGraph> reduce(const Problem &problem, bool limited,
                                const std::function<bool()> &stop) {
  ReductionGraph graph(problem);
  if (limited)
    loadTimes(problem, graph);
  TESSERA_RETURN_IF_ERROR(reduceBelow(graph, kForbidden, stop));
  return graph;
}

} // namespace tessera::solver
