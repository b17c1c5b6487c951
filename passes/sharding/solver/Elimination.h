// Exact minimization over some variables while the others stay as they are:
// bucket elimination (Dechter, "Bucket elimination: a unifying framework for
// reasoning", 1999) along an order of small tables. Internal to the solver.
#pragma once
#include "passes/sharding/solver/Model.h"

namespace tessera::solver {

class Elimination {
public:
  /// Finds an order for `candidates` in which no table has more than `limit`
  /// entries. If there is none, random variables with many neighbours are left
  /// out: they keep their values.
  Elimination(const Model &model, std::span<const int> candidates,
              std::size_t limit, Random &random);

  /// Gives the variables the cheapest values, with `unary` instead of the
  /// model's costs. Returns the cost of all terms that touch a variable.
  double run(std::span<const double> unary, std::span<int> values);

  /// The same, but candidates that were left out may take a different value for
  /// each neighbour: a first choice that does not depend on their values.
  void runRelaxed(std::span<const double> unary, std::span<int> values);

  /// The eliminated variables, in order.
  const std::vector<int> &variables() const { return order; }
  /// Whether no candidate was left out.
  bool complete() const { return leftOut == 0; }

private:
  /// A table over some axes of a step's scope and, innermost, its variable.
  struct Factor {
    const double *model; // null: a table of an earlier step
    std::size_t table;
    /// The deepest axis, and the distance between entries along each; an axis
    /// that the factor does not have is at distance 0.
    int depth;
    std::vector<std::size_t> strides;
  };
  struct Step {
    int variable;
    /// Neighbours at the time of elimination, the next to go last.
    std::vector<int> scope;
    std::vector<Factor> factors; // by depth
    std::size_t table;           // where the result starts
  };
  class Order;

  void addStep(std::size_t at, std::vector<std::vector<std::size_t>> &tablesOf);
  const double *rowOf(const Factor &factor, std::span<const int> index) const;
  void loadUnary(const Step &step, std::span<const double> unary,
                 std::span<const int> values);
  void fillTable(const Step &step);
  double *fillInner(const Step &step, std::size_t first,
                    std::span<const int> index, const double *sum, double *out);
  double choose(const Step &step, std::span<int> values);

  const Model &model;
  std::vector<int> order;
  std::vector<int> position; // of all variables in `order`, or one of these
  static constexpr int kOutside = -1, kLeftOut = -2;
  std::vector<Step> steps;
  std::vector<double> tables;
  std::vector<const double *> rows; // of fillInner
  std::vector<double> partial;      // sums down to each depth, [depth][values]
  bool relaxed = false;             // in this run
  std::size_t leftOut = 0;
};

} // namespace tessera::solver
