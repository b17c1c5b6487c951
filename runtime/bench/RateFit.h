// Least squares of latencies and rates, which are not negative.
#pragma once
#include "hardware/Host.h"

#include <span>
#include <vector>

namespace tessera::bench {

/// One measurement of what takes launch + work / flops + traffic / bytes.
struct RateSample {
  double work = 0, traffic = 0, seconds = 0;
};

/// Minimizes the sum of (error / seconds)² · seconds: small ones count, though
/// less than large ones. Rates that no sample shows stay 0.
planner::KernelRate fitRate(std::span<const RateSample> samples);

} // namespace tessera::bench
