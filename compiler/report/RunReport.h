// The report of a training run, from the files of its directory.
#pragma once
#include <string>
#include <string_view>

#include "compiler/report/Json.h"
#include "runtime/support/Status.h"

namespace tessera::report {

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
