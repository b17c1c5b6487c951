// The times at which memory may run out, and the values that they rule out.
// Internal to the solver.
#pragma once
#include "passes/sharding/solver/ReductionGraph.h"

namespace tessera::solver {

/// Gives `graph` its times, capacities and usage parts. Usage grows only where
/// a node begins, so those are the times. Without a limit there are none.
void loadTimes(const Problem &problem, ReductionGraph &graph);

/// Makes the parts of `v` disjoint and ordered, with a least usage of zero; the
/// least usage moves to `certain`.
void normalizeParts(ReductionGraph &graph, int v);

/// Subtracts certain usage from the capacity, forbids values that never fit,
/// and drops times at which memory cannot run out, or only if it does at a
/// neighbouring time. Appends the variables that lost a value or a part to
/// `changed`. An error if nothing fits.
Status tightenTimes(ReductionGraph &graph, std::vector<int> &changed);

} // namespace tessera::solver
