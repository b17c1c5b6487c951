#include "runtime/eval/Gates.h"

namespace tessera::eval {

std::string metricName(const Result &result) {
  return result.group.empty() ? result.metric
                              : result.metric + "{" + result.group + "}";
}

std::vector<GateOutcome> checkGates(const std::vector<Gate> &gates,
                                    const std::vector<Result> &results) {
  std::vector<GateOutcome> outcomes;
  for (const Gate &gate : gates)
    for (const Result &result : results) {
      if (result.task != gate.task || result.metric != gate.metric ||
          result.group != gate.group)
        continue;
      // A value that is not a number reaches nothing.
      const bool passed = gate.isLeast ? result.value >= gate.bound
                                       : result.value <= gate.bound;
      outcomes.push_back({gate.text, result.value, passed});
    }
  return outcomes;
}

} // namespace tessera::eval
