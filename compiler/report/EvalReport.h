// The report of an evaluation, from what `tessera eval` writes.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "compiler/report/Json.h"

namespace tessera::report {

/// `results`: the results as JSON (docs/evaluating.md), `samples`: lines of
/// JSON, each with its task. The page has at most `mostBytes` of samples: the
/// first of each task, equally many bytes of each; `samples_left_out` is how
/// many are missing.
Json evalReport(std::string_view results, std::span<const std::string> samples,
                std::size_t mostBytes = std::size_t(4) << 20);

} // namespace tessera::report
