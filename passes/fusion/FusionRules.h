// Which ops become one kernel: the rules, the most profitable first.
#pragma once
#include "passes/fusion/FusionGraph.h"

namespace tessera {

/// Applies all rules to the groups of a block.
///
/// 1. A contraction absorbs the elementwise ops that follow it as its epilogue:
///    they run on its accumulators and cost no traffic at all.
/// 2. The gradient of attention writes its three results where a concatenation
///    puts them.
/// 3. Reductions along rows absorb the ops around them, producers and
///    consumers, and each other: a row stays in cache from one pass to the
///    next.
/// 4. Elementwise chains become one kernel.
///    Not of two microbatches' terms to one large sum, though: all terms would
///    be kept for the last one (graph.microbatch_sum).
/// 5. Other reductions and scatters absorb producers that are not stored
///    otherwise. They and contractions recompute others if that reads no more
///    than storing them costs. Column reductions over the same tensors share a
///    kernel, unless a collective would have to wait for more.
void applyFusionRules(FusionGraph &graph);

/// After the rules: a remark on each op whose result one kernel stores for
/// another, with the reason why the two are not one.
void explainStores(FusionGraph &graph);

} // namespace tessera
