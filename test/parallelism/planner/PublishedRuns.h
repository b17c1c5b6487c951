// Training runs that others measured and published with their configuration.
#pragma once
#include <string>
#include <vector>

#include "parallelism/planner/CostModel.h"

namespace tessera::planner::test {

struct PublishedRun {
  std::string name, source;
  std::string spec = {}, cluster = {}; ///< under models/
  int64_t gpus = 0;
  std::string plan = {}; ///< as --fix takes it
  Workload workload = {};
  /// Their FLOPs count every key that a causal query could have, not half.
  bool allKeys = false;
  double utilization = 0;   ///< as measured: of the bf16 peak, by their FLOPs
  std::string assumed = {}; ///< what of the configuration is not published
  std::string miss = {}; ///< why the prediction is more than 20 % off, if it is
};

const std::vector<PublishedRun> &publishedRuns();

/// The model's utilization by the run's own count of FLOPs.
double predicted(const PublishedRun &run, StepCost *cost = nullptr,
                 Memory *memory = nullptr);

} // namespace tessera::planner::test
