// The report of a parallelism plan: the best plans, and what ruled out others.
#pragma once
#include "compiler/report/Json.h"
#include "parallelism/planner/Replay.h"
#include "parallelism/planner/Report.h"

namespace tessera::report {

/// What answerJson has, and each degree's other values with their cost or what
/// bound them. `replay` may be null.
Json planReport(const planner::Question &question,
                const planner::Answer &answer, const planner::Replay *replay);

} // namespace tessera::report
