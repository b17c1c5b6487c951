// How often to write checkpoints, given the rate of failures.
#pragma once

namespace tessera::planner {

/// All in seconds except the share.
struct CheckpointPolicy {
  double meanTimeBetweenFailures = 0;
  double young = 0; ///< sqrt(2 delta M), Young 1974
  /// Daly's higher-order estimate (2006), which counts what is lost while a
  /// checkpoint is written.
  double daly = 0;
  /// The fraction of time for checkpoints, repeated work and restarts, at
  /// `young`.
  double lostShare = 0;
};

/// For `gpus` GPUs that fail independently every `gpuMtbf` seconds each, where
/// a checkpoint stops training for `blocking` and a failure for `restart`
/// seconds, all of them positive.
CheckpointPolicy checkpointPolicy(double gpus, double gpuMtbf, double blocking,
                                  double restart);

} // namespace tessera::planner
