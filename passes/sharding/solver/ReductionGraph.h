// A problem while it is reduced: variables with values, matrices between them,
// and the decisions so far. Internal to the solver.
#pragma once
#include "passes/sharding/solver/Problem.h"

#include <array>
#include <map>
#include <span>
#include <vector>

namespace tessera::solver {

/// Costs during the search: sums below 2^53 are exact. A forbidden choice costs
/// kForbidden, and any sum with it is at least kForbidden / 2.
inline constexpr double kForbidden = 1e18;
constexpr bool isForbidden(double cost) { return cost >= kForbidden / 2; }

/// Memory that a variable uses during [begin, end) of the times that are
/// kept; one entry a value.
struct UsagePart {
  int begin, end;
  std::vector<std::int64_t> usage;
};

/// How a node follows from at most two others, by their strategies.
struct Decision {
  int node;
  /// Nodes, -1 where there is none.
  std::array<int, 2> scope = {-1, -1};
  /// For each of the scope, a strategy's row or column in the table.
  std::array<std::vector<int>, 2> position = {};
  /// Strategies of `node`, [rows][columns].
  std::vector<int> table = {};
};

class ReductionGraph {
public:
  struct Variable {
    bool alive = true;
    std::vector<double> cost;
    /// The node's strategy for each value.
    std::vector<int> strategy;
    /// May overlap: usages at a time add up.
    std::vector<UsagePart> parts;
    /// Set where parts or values changed since normalizeParts.
    bool partsStale = false;
    /// Neighbour to index of the edge.
    std::map<int, int> edges;
    std::size_t size() const { return cost.size(); }
  };

  explicit ReductionGraph(const Problem &problem);

  std::vector<Variable> variables; // as many as nodes
  std::vector<Decision> decisions; // undone from the last to the first
  /// Times at which memory may run out, and the free memory at each.
  std::vector<std::int64_t> timePoints, capacity;
  /// Certain usage that is not yet subtracted from the capacity: changes from
  /// time to time, one more than there are times.
  std::vector<std::int64_t> certain;
  /// The cost of all decisions.
  double constant = 0;

  /// The cost of value `i` of `v` with value `j` of its neighbour `u`.
  double at(int edge, int v, std::size_t i, std::size_t j) const {
    const Matrix &matrix = matrices[edge];
    return matrix.costs[matrix.index(v, i, j)];
  }
  double &at(int edge, int v, std::size_t i, std::size_t j) {
    Matrix &matrix = matrices[edge];
    return matrix.costs[matrix.index(v, i, j)];
  }

  /// Adds [values of v][values of u] to an edge, which it creates if necessary.
  void addEdge(int v, int u, std::span<const double> costs);
  void removeEdge(int v, int u);
  /// Keeps the values at these positions, in this order.
  void keepValues(int v, std::span<const int> kept);

  /// `v` has one value left: adds its costs to its neighbours and subtracts its
  /// usage from the capacity.
  void fix(int v);
  /// `v` follows from its neighbour `u`: value i of u takes value follows[i] of
  /// v. Costs, usages and edges of v become u's.
  void merge(int v, int u, std::span<const int> follows);
  /// `v` uses no memory and has at most two neighbours: the best of its values
  /// becomes a cost of theirs (R0, R1 and R2 of PBQP).
  void eliminate(int v);

  /// The choice of all nodes, given those of the variables that are alive.
  void undo(std::span<int> choice) const;

private:
  struct Matrix {
    int from, to;
    std::size_t columns; // values of `to`
    std::vector<double> costs;
    std::size_t index(int v, std::size_t i, std::size_t j) const {
      return from == v ? i * columns + j : j * columns + i;
    }
  };
  std::vector<Matrix> matrices;

  void dropVariable(int v);
  std::vector<int> positions(int v) const;
  std::vector<std::size_t> strategyCounts;
};

} // namespace tessera::solver
