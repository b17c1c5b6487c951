// What an evaluation during training must reach: "eval_loss <= 3.2".
#pragma once
#include <array>
#include <string_view>

#include "runtime/support/Status.h"

namespace tessera::recipe {

/// Those of evaluations in metrics.jsonl.
inline constexpr std::string_view kEvalLoss = "eval_loss",
                                  kEvalReward = "eval_reward";
inline constexpr std::array kGateMetrics = {kEvalLoss, kEvalReward};

struct MetricGate {
  std::string_view metric; ///< of kGateMetrics
  bool isLeast = false;    ///< `>=`; otherwise `<=`
  double bound = 0;
  /// Not by a value that is not a number.
  bool isPassedBy(double value) const {
    return isLeast ? value >= bound : value <= bound;
  }
};

/// "METRIC <= NUMBER" or ">="; the error says what is expected.
StatusOr<MetricGate> parseMetricGate(std::string_view text);

} // namespace tessera::recipe
