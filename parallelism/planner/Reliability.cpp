#include "parallelism/planner/Reliability.h"

#include <algorithm>
#include <cmath>

namespace tessera::planner {

CheckpointPolicy checkpointPolicy(double gpus, double gpuMtbf, double blocking,
                                  double restart) {
  CheckpointPolicy policy;
  double mean = gpuMtbf / gpus;
  policy.meanTimeBetweenFailures = mean;
  policy.young = std::sqrt(2 * blocking * mean);
  double ratio = blocking / (2 * mean);
  policy.daly =
      ratio < 1
          ? policy.young * (1 + std::sqrt(ratio) / 3 + ratio / 9) - blocking
          : mean;
  policy.lostShare = std::min(1.0, blocking / policy.young +
                                       (policy.young / 2 + restart) / mean);
  return policy;
}

} // namespace tessera::planner
