// Whether results reach what the task file requires.
#pragma once
#include "runtime/eval/RunTasks.h"

namespace tessera::eval {

struct GateOutcome {
  std::string text; ///< "qa.acc >= 0.5"
  double value = 0;
  bool passed = false;
};

/// Of gates that runTasks has accepted.
std::vector<GateOutcome> checkGates(const std::vector<Gate> &gates,
                                    const std::vector<Result> &results);

/// "acc", or "bits_per_byte{language=en}".
std::string metricName(const Result &result);

} // namespace tessera::eval
