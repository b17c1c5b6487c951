// TensorBoard event files, from the metrics of a run.
#pragma once
#include <string>
#include <string_view>

#include "runtime/support/Status.h"

namespace tessera::report {

/// The bytes of an event file (TFRecord of tensorflow.Event, file version
/// brain.Event:2) with a scalar for each number of metrics.jsonl: "train/loss",
/// "eval/loss", and for each layer "router/max_load/0". Lines have no time of
/// their own: the last one is at `end`, seconds since 1970, and each is earlier
/// than the next by that one's step_time. Errors name `path` and the line.
StatusOr<std::string> eventFile(std::string_view metrics,
                                const std::string &path, double end);

/// eventFile of RUN/metrics.jsonl as DIR/events.out.tfevents.<seconds>.tessera,
/// with the time at which the run began. Replaces its predecessor.
Status writeEventFile(const std::string &run, const std::string &directory);

} // namespace tessera::report
