#include "runtime/eval/RunTasks.h"
#include "runtime/eval/Runner.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>
#include <set>

namespace tessera::eval {
namespace {

//===--- metrics ----------------------------------------------------------===//

std::vector<Result> likelihoodResults(const std::vector<const Outcome *> &of) {
  Likelihood sum;
  int64_t bytes = 0;
  for (const Outcome *each : of) {
    sum.logprob += each->likelihood.logprob;
    sum.tokens += each->likelihood.tokens;
    bytes += each->bytes;
  }
  std::vector<Result> results(3);
  results[0].metric = "token_perplexity";
  results[0].value = std::exp(-sum.logprob / double(sum.tokens));
  results[1].metric = "byte_perplexity";
  results[1].value = std::exp(-sum.logprob / double(bytes));
  results[2].metric = "bits_per_byte";
  results[2].value = -sum.logprob / double(bytes) / std::numbers::ln2;
  for (Result &each : results) {
    each.examples = int64_t(of.size());
    each.tokens = sum.tokens;
    each.bytes = bytes;
  }
  return results;
}

std::vector<Result> meanResults(const std::vector<const Outcome *> &of) {
  std::vector<Result> results;
  for (std::size_t i = 0; i < of.front()->metrics.size(); ++i) {
    std::vector<double> values;
    values.reserve(of.size());
    for (const Outcome *each : of)
      if (!std::isnan(each->metrics[i].second))
        values.push_back(each->metrics[i].second);
    const Mean mean = meanOf(values);
    Result result;
    result.examples = int64_t(values.size());
    result.metric = of.front()->metrics[i].first;
    result.value = mean.value;
    result.standardError = mean.standardError;
    results.push_back(std::move(result));
  }
  return results;
}

/// Of all examples first, then of groups in the order of their names.
void addResults(const LoadedTask &loaded, const std::vector<Outcome> &outcomes,
                std::vector<Result> &to) {
  std::map<std::string, std::vector<const Outcome *>> groups;
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    for (const std::string &group : loaded.groups[i])
      groups[group].push_back(&outcomes[i]);
  for (const auto &[group, members] : groups)
    for (Result &result : loaded.task.kind == TaskKind::perplexity
                              ? likelihoodResults(members)
                              : meanResults(members)) {
      result.task = loaded.task.name;
      result.kind = loaded.task.kind;
      result.group = group;
      to.push_back(std::move(result));
    }
}

/// A gate's group must be one of its task's, or the run would end with an
/// error.
Status checkGroups(const std::vector<Gate> &gates,
                   const std::vector<LoadedTask> &tasks) {
  for (const Gate &gate : gates)
    for (const LoadedTask &loaded : tasks) {
      if (loaded.task.name != gate.task || gate.group.empty())
        continue;
      std::set<std::string_view> known;
      for (const auto &groups : loaded.groups)
        known.insert(groups.begin() + 1, groups.end());
      if (known.contains(gate.group))
        continue;
      const std::vector<std::string_view> names(known.begin(), known.end());
      return Status::error("gate {}: task {} has no group {}{}; {}",
                           quote(gate.text), gate.task, quote(gate.group),
                           suggestion(gate.group, names),
                           names.empty() ? "it has no split_by"
                                         : "its groups are " + choices(names));
    }
  return Status::success();
}

} // namespace

Mean meanOf(const std::vector<double> &values) {
  if (values.empty())
    return {std::numeric_limits<double>::quiet_NaN(), {}};
  const auto count = double(values.size());
  Mean mean{std::accumulate(values.begin(), values.end(), 0.0) / count, {}};
  if (values.size() < 2)
    return mean;
  double squares = 0;
  for (double value : values)
    squares += (value - mean.value) * (value - mean.value);
  mean.standardError = std::sqrt(squares / (count - 1) / count);
  return mean;
}

StatusOr<EvalResults>
runTasks(const TaskFile &file, EvalModel &model,
         const std::function<void(std::string_view)> &note,
         const JudgeAccess &judge, std::vector<std::string> *unfinished) {
  const std::vector<Task> &tasks = file.tasks;
  std::vector<LoadedTask> loaded;
  std::vector<std::unique_ptr<Runner>> runners;
  loaded.reserve(tasks.size()); // runners point into it
  for (const Task &task : tasks) {
    auto one = loadTask(task);
    if (!one.ok())
      return Status::error("task {}: {}", task.name, one.message());
    loaded.push_back(one.take());
    runners.push_back(runnerOf(loaded.back(), judge));
    if (Status status = runners.back()->prepare(); !status.ok())
      return Status::error("task {}: {}", task.name, status.message());
  }
  TESSERA_RETURN_IF_ERROR(checkGroups(file.gates, loaded));
  EvalResults results;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Status status = runners[i]->run(model);
    for (std::string &line : runners[i]->samples)
      results.samples.push_back(std::move(line));
    if (!status.ok()) {
      if (unfinished)
        *unfinished = std::move(results.samples);
      return Status::error("task {}: {}", tasks[i].name, status.message());
    }
    addResults(loaded[i], runners[i]->outcomes, results.results);
    note(fmt::format("task {}: {} examples{}", tasks[i].name,
                     loaded[i].examples.size(), runners[i]->remark));
  }
  return results;
}

} // namespace tessera::eval
