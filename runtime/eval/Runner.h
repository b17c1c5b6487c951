// The examples of a task as inputs of a model, and what the model's results for
// them are worth.
#pragma once
#include "runtime/eval/Examples.h"
#include "runtime/eval/Prompts.h"
#include "runtime/eval/RunTasks.h"

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tessera::eval {

struct LoadedTask {
  Task task;
  std::vector<Example> examples;
  std::vector<std::vector<std::string>> groups; ///< of each example
};

/// What one example contributes. A metric that is not a number is none: the
/// example is left out of its mean.
struct Outcome {
  std::vector<std::pair<std::string, double>> metrics = {};
  Likelihood likelihood = {}; ///< of perplexity
  int64_t bytes = 0;
};

/// Inputs of a task, made and checked before any model runs. The task must
/// outlive it.
class Runner {
public:
  explicit Runner(const LoadedTask &loaded)
      : loaded(loaded), task(loaded.task) {}
  virtual ~Runner() = default;
  virtual Status prepare() = 0;
  virtual Status run(EvalModel &model) = 0;

  std::vector<Outcome> outcomes;    ///< one per example, after run()
  std::vector<std::string> samples; ///< the same as lines of JSON
  std::string remark;               ///< on the results; empty: none

protected:
  void addSample(std::size_t index, const nlohmann::ordered_json &fields);
  const LoadedTask &loaded;
  const Task &task;
};

/// Reads the data of a task, and the values of `split_by`.
StatusOr<LoadedTask> loadTask(const Task &task);
std::unique_ptr<Runner> runnerOf(const LoadedTask &loaded,
                                 const JudgeAccess &judge);

/// Inputs of kinds that generate.
class GenerationRunner : public Runner {
public:
  using Runner::Runner;
  Status prepare() override;
  Status run(EvalModel &model) override;

protected:
  virtual Status prepareOne(const Example &example) = 0;
  /// Of all outputs: fills outcomes and samples.
  virtual Status grade(const std::vector<std::string> &outputs) = 0;

  std::vector<Prompt> prompts;
};

} // namespace tessera::eval
