// A polite end on SIGINT and SIGTERM: the loop asks between steps.
#pragma once
#include "runtime/support/Status.h"

namespace tessera {

/// Installs handlers for SIGINT and SIGTERM. The first signal sets
/// stopRequested(); a second one of the same kind ends the process as if no
/// handler were there. Blocking calls are restarted.
Status catchStopSignals();

/// Whether a signal has arrived since the handlers were installed.
bool stopRequested();

/// The number of the signal that arrived, or 0.
int stopSignal();

} // namespace tessera
