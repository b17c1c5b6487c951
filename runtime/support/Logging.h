// Where a run's log goes: standard error, one line an event, so that standard
// output stays free for results.
#pragma once
#include "runtime/support/Status.h"

#include <string_view>

namespace tessera {

/// Makes spdlog's default logger write to standard error at `level` (trace,
/// debug, info, warn, error or off). The environment variable TESSERA_LOG wins
/// over `level`, so that a deployed program can be made to talk.
Status initLogging(std::string_view level = "info");

} // namespace tessera
