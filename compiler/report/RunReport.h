// The report of a training run, from the files of its directory.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/report/Json.h"
#include "runtime/support/Status.h"

namespace tessera::report {

inline constexpr std::int64_t kMostMetricsBytes = std::int64_t(1) << 30;

/// The lines of metrics.jsonl, each with an integer "step"; the last one is
/// left out while it is being written. Errors name `path` and the line.
StatusOr<std::vector<Json>> metricsRecords(std::string_view text,
                                           const std::string &path);

/// metrics.jsonl as columns: {"step":[…],"loss":[…],…}, null where a line has
/// no such number; router columns are "router.max_load" and so on, an array for
/// each layer. More than `mostRows` lines become the first of each of as many
/// equal groups. Errors name `path` and the line.
StatusOr<Json> metricsColumns(std::string_view text, const std::string &path,
                              std::size_t mostRows = 4000);

/// Of RUN/: metrics, memory.json, recipe.yaml and the checkpoints that there
/// are.
StatusOr<Json> runReport(const std::string &run);

} // namespace tessera::report
