// Problems and answers in the format of the ASPLOS/EuroSys 2025 contest
// (google/iopddl): {"problem": {"name", "nodes": {"intervals", "costs",
// "usages"}, "edges": {"nodes", "costs"}, "usage_limit"}}.
#pragma once
#include "passes/sharding/solver/Problem.h"

#include <span>
#include <string>
#include <string_view>

namespace tessera::iopddl {

/// A valid problem from JSON; `where` begins errors. Unknown members are
/// skipped. Memory use is bounded by the length of `text`.
StatusOr<solver::Problem> parseProblem(std::string_view text,
                                       std::string_view where);

/// The same from a file, plain or compressed by gzip, of at most 4 GiB of JSON.
StatusOr<solver::Problem> readProblem(const std::string &path);

/// "[i0, i1, …]".
std::string formatChoice(std::span<const int> choice);

} // namespace tessera::iopddl
