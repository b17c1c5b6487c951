#include "runtime/eval/Report.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace tessera::eval {

using Json = nlohmann::ordered_json;

std::string printTable(const std::vector<Result> &results) {
  std::size_t task = 4, metric = 6;
  for (const Result &result : results) {
    task = std::max(task, result.task.size());
    metric = std::max(metric, metricName(result).size());
  }
  std::string table =
      fmt::format("{:<{}}  {:<{}}  {:>10}  {:>10}  {:>8}\n", "task", task,
                  "metric", metric, "value", "stderr", "examples");
  for (const Result &result : results)
    table += fmt::format(
        "{:<{}}  {:<{}}  {:>10.6g}  {:>10}  {:>8}\n", result.task, task,
        metricName(result), metric, result.value,
        result.standardError ? fmt::format("{:.6g}", *result.standardError)
                             : "-",
        result.examples);
  return table;
}

std::string printJson(const Report &report) {
  Json results = Json::array();
  for (const Result &result : report.results) {
    Json one = {{"task", result.task},
                {"kind", kTaskKinds[std::size_t(result.kind)]},
                {"metric", result.metric},
                {"group", nullptr},
                {"value", result.value},
                {"stderr", nullptr},
                {"examples", result.examples}};
    if (!result.group.empty())
      one["group"] = result.group;
    if (result.standardError)
      one["stderr"] = *result.standardError;
    if (result.tokens > 0) {
      one["tokens"] = result.tokens;
      one["bytes"] = result.bytes;
    }
    results.push_back(std::move(one));
  }
  Json gates = Json::array();
  for (const GateOutcome &gate : report.gates)
    gates.push_back(
        {{"gate", gate.text}, {"value", gate.value}, {"passed", gate.passed}});
  Json all = {{"version", report.version}, {"model", report.model},
              {"source", report.source},   {"tasks", report.tasks},
              {"results", results},        {"gates", gates}};
  if (!report.adapter.empty())
    all["adapter"] = report.adapter;
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace tessera::eval
