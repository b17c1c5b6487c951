// tessera doctor --calibrate: measures this machine into a cluster file.
#pragma once
#include "runtime/support/Status.h"
#include <string>

namespace tessera {

struct CalibrateOptions {
  std::string output; ///< the cluster file
  int ranks = 8;      ///< the most ranks whose collectives are measured
  /// Of a rank that calibrate() started: where the first one writes its rows.
  std::string rows;
};

/// Measures kernels, memory and, with mpirun, collectives between 2, 4, …
/// ranks. As one of several ranks: collectives between these only. Prints what
/// it measured; the first rank writes the file.
Status calibrate(const CalibrateOptions &options);

} // namespace tessera
