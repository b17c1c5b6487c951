// Runs tasks with a model, and computes their metrics.
#pragma once
#include "runtime/eval/EvalModel.h"
#include "runtime/eval/TaskFile.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::eval {

struct Result {
  std::string task;
  TaskKind kind = TaskKind::perplexity;
  std::string metric;
  std::string group; ///< "language=en"; empty: all examples
  double value = 0;
  std::optional<double> standardError; ///< of a mean of at least two
  int64_t examples = 0;
  int64_t tokens = 0, bytes = 0; ///< of perplexity; otherwise 0
};

struct EvalResults {
  std::vector<Result> results;
  std::vector<std::string> samples; ///< an example each, as a line of JSON
};

/// How judges of win_rate tasks are reached.
struct JudgeAccess {
  std::string url;           ///< instead of those of the tasks; empty: theirs
  std::string authorization; ///< of every request; may be empty
};

/// All tasks of the file, in order. Their data and the gates are checked, and
/// judges reached, before the model computes anything. `note` receives a line
/// for each finished task. After an error `unfinished` has the samples so far,
/// and what the model said to a task whose judge failed.
StatusOr<EvalResults>
runTasks(const TaskFile &file, EvalModel &model,
         const std::function<void(std::string_view)> &note,
         const JudgeAccess &judge = {},
         std::vector<std::string> *unfinished = nullptr);

/// Mean of `values`, and its standard error from the sample's deviation (n-1),
/// as in lm-evaluation-harness. Of no values it is not a number.
struct Mean {
  double value;
  std::optional<double> standardError;
};
Mean meanOf(const std::vector<double> &values);

} // namespace tessera::eval
