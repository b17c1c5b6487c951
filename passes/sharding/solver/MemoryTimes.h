// The times at which memory may run out, and what follows from them for the
// values of variables. Internal to the solver.
#pragma once
#include "passes/sharding/solver/ReductionGraph.h"

namespace tessera::solver {

/// Gives `graph` its times, capacities and usage parts. Usage grows only where
/// a node begins, so those are the times. Without a limit there are none.
void loadTimes(const Problem &problem, ReductionGraph &graph);

/// Makes the parts of `v` disjoint, in order and with a least usage of zero;
/// what is used at the least becomes certain.
void normalizeParts(ReductionGraph &graph, int v);

/// Takes what is used in any case out of the capacity, forbids values that
/// never fit, and drops the times at which memory cannot run out or does so
/// only if it does at a neighbouring time. Appends the variables that lost a
/// value or a part to `changed`. An error says that nothing fits.
Status tightenTimes(ReductionGraph &graph, std::vector<int> &changed);

} // namespace tessera::solver
