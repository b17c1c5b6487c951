// The training loop: batches in, steps, evaluation, checkpoints, metrics out.
#pragma once
#include "runtime/data/FileOperations.h"
#include "runtime/train/BatchSource.h"
#include "runtime/train/RunMemory.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// What the command line of a training executable says.
struct TrainOptions {
  std::string data;              ///< token directory; empty: the recipe's
  std::string evalData;          ///< empty: the recipe's, or data/eval
  std::string out = "run";       ///< run directory
  std::optional<uint64_t> steps; ///< last step; default: lr_schedule.total
  bool resume = false;
  std::string initFrom;          ///< Hugging Face weights; empty: none
  std::vector<std::string> sets; ///< "optimizer.lr=3e-4"
  std::optional<int64_t> seed;
  std::optional<uint64_t> evalEvery, checkpointEvery; ///< steps
  uint64_t logEvery = 10;   ///< steps between plain progress lines
  bool quiet = false;       ///< errors only
  bool json = false;        ///< metrics records on standard output
  bool dumpMetrics = false; ///< hexadecimal metrics on standard output
  std::string profile;      ///< trace file; empty: none
  bool checkFinite = false; ///< stop at the first kernel that writes NaN
  std::string device = "cpu";
  unsigned threads = 0;  ///< 0: all processors
  int64_t timeout = 600; ///< seconds that ranks wait for one another

  /// Whether this process writes the run directory. Of several ranks one does;
  /// the others execute the same code with file operations that do nothing.
  bool writesRun = true;
  /// Where the artifact is, for the copy in the run directory; empty: none.
  std::string program;
  int ranks = 1;
  /// FLOP/s that 100 % MFU means, of all ranks; 0: not reported.
  double peakFlops = 0;
  /// Resident before the model was opened: the program and its libraries.
  uint64_t baseBytes = 0;
  /// In the memory that is measured; they outlive the run.
  std::vector<OtherModel> others = {};
  /// Where batches come from instead of `data`; null: from `data`.
  BatchSource *source = nullptr;
  /// Asked between steps; the default is stopRequested().
  std::function<bool()> stop;
};

struct TrainSummary {
  uint64_t firstStep = 0, lastStep = 0; ///< steps done before and after
  std::optional<float> loss;            ///< of the last step
  std::optional<double> evalLossBefore, evalLossAfter;
  bool stopped = false; ///< before the last step: by a signal or a gate
  /// What has ended the run on all ranks alike: a missed gate, or a loss or
  /// gradient norm that is not finite. Empty: nothing.
  std::string failure;
};

/// Trains to step `options.steps` in total (a resumed run does the steps that
/// are left). On a signal it finishes the current step, writes a checkpoint and
/// succeeds. An error leaves earlier checkpoints untouched, and so does a loss
/// that is not finite.
StatusOr<TrainSummary> runTraining(TrainModel &model,
                                   const TrainOptions &options,
                                   FileOperations &files = systemFiles());

/// The run's error, or the failure that has ended it.
Status outcomeOf(const StatusOr<TrainSummary> &run);

} // namespace tessera
