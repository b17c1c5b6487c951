// The question of `tessera plan`: a model, a cluster and a workload.
#pragma once
#include "parallelism/planner/Report.h"
#include "runtime/support/Status.h"
#include <string>
#include <vector>

namespace tessera {

/// What the command line says of it. What is empty or 0 has a default.
struct QuestionOptions {
  std::string spec, cluster; ///< files
  std::string tokens;        ///< of the whole training, "1e12"
  /// Bandwidth between nodes, "25GB/s"; one of them at most.
  std::string perGpu, perNode;
  /// "all", "none" or some of "tensor,expert,data,pipe".
  std::string overlap;
  std::string precision;        ///< "bf16" or "fp8"
  std::string recipe;           ///< a file
  std::vector<std::string> set; ///< of the recipe
  int64_t gpus = 0;
  int64_t globalBatch = 0; ///< sequences of a step
  int64_t sequence = 0;    ///< tokens
  double imbalance = planner::Workload().imbalance;
};

/// Reads the files. Errors name the option, and say what to do.
StatusOr<planner::Question> readQuestion(const QuestionOptions &options);

} // namespace tessera
