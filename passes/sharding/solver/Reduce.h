// Exact reductions: a smaller problem with the same optimum, memory limit
// included. Internal to the solver.
#pragma once
#include "passes/sharding/solver/ReductionGraph.h"

#include <functional>

namespace tessera::solver {

/// Reduces until nothing applies or `stop` says so: drops values that are not
/// allowed, never fit or are dominated; fixes variables with one value; merges
/// variables into a neighbour from which they follow; eliminates variables
/// without memory and with at most two neighbours. `problem` is valid; its
/// limit counts if `limited`. An error if nothing is feasible, with the reason.
StatusOr<ReductionGraph> reduce(const Problem &problem, bool limited,
                                const std::function<bool()> &stop);

/// Continues with `graph`, for solutions that cost at most `ceiling`: one of
/// the cheapest of them is kept. An error if there is none.
Status reduceBelow(ReductionGraph &graph, double ceiling,
                   const std::function<bool()> &stop);

} // namespace tessera::solver
