// The difference of two files, line by line.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::report {

/// `keep` lines of both, then `remove` of the old and `add` of the new.
struct DiffRun {
  std::uint32_t keep = 0, remove = 0, add = 0;
  bool operator==(const DiffRun &) const = default;
};

/// From `before` to `after`, whose lines are given as keys: equal keys are
/// equal lines. Lines that occur once in both are matched first (patience
/// diff), what is between them by Myers' algorithm (1986) unless that takes
/// long. So the runs are right, and short for files that differ little.
std::vector<DiffRun> diffLines(std::span<const std::uint64_t> before,
                               std::span<const std::uint64_t> after);

} // namespace tessera::report
