// Training runs that others measured and published with their configuration.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallelism/planner/CostModel.h"

namespace tessera::planner::test {

struct PublishedRun {
  std::string name, source;
  std::string spec = {}, cluster = {}; ///< under models/
  /// What the model has otherwise than `spec`; may be empty.
  std::function<void(ModelShape &)> change = {};
  int64_t gpus = 0;
  std::string plan = {}; ///< as --fix takes it
  Workload workload = {};
  /// Their FLOPs count every key that a causal query could have, not half.
  bool allKeys = false;
  double utilization = 0;   ///< as measured: of the bf16 peak, by their FLOPs
  std::string assumed = {}; ///< what of the configuration is not published
  std::string miss = {}; ///< why the prediction is more than 10 % off, if it is
  /// The run keeps less than the memory model knows of; empty: it does not.
  std::string lessMemory = {};
};

/// The sixteen runs by which the cost model is judged.
const std::vector<PublishedRun> &publishedRuns();

/// Runs that were compared only when mechanisms and constants stood.
const std::vector<PublishedRun> &otherRuns();

/// Software as most runs have it: Megatron-Core of 2024 and later.
Workload megatronCore(int64_t sequence, int64_t batch);

/// The model's utilization by the run's own count of FLOPs. `clock` scales the
/// sustained clock of the cluster's GPUs.
double predicted(const PublishedRun &run, StepCost *cost = nullptr,
                 Memory *memory = nullptr, double clock = 1);

} // namespace tessera::planner::test
