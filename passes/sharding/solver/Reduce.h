// Exact reductions: a smaller problem with the same optimum, memory limit
// included. Internal to the solver.
#pragma once
#include "passes/sharding/solver/ReductionGraph.h"

#include <functional>

namespace tessera::solver {

/// Applies, until none does or `stop` says so: values that are not allowed,
/// never fit or are dominated go; variables with one value are fixed; variables
/// that follow from a neighbour are merged into it; variables without memory
/// and with at most two neighbours are eliminated. `problem` is valid; its
/// limit counts if `limited`. An error says that nothing is feasible, and why.
StatusOr<ReductionGraph> reduce(const Problem &problem, bool limited,
                                const std::function<bool()> &stop);

/// Goes on with `graph`, where only what costs at most `ceiling` is wanted: of
/// the cheapest such solutions one stays. An error says that there is none.
Status reduceBelow(ReductionGraph &graph, double ceiling,
                   const std::function<bool()> &stop);

} // namespace tessera::solver
