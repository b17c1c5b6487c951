#include "compiler/report/RunReport.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "runtime/support/Text.h"

namespace tessera::report {

namespace fs = std::filesystem;

static constexpr std::int64_t kMostFileBytes = std::int64_t(1) << 20;
static constexpr const char *kNumbers[] = {
    "step", "loss",      "grad_norm",    "lr",         "tokens",
    "mfu",  "step_time", "tokens_per_s", "peak_bytes", "eval_loss"};

static Json numberOf(const Json &record, const char *key) {
  return record.contains(key) && record[key].is_number() ? record[key]
                                                         : Json(nullptr);
}

StatusOr<std::vector<Json>> metricsRecords(std::string_view text,
                                           const std::string &path) {
  std::vector<Json> records;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    ++number;
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty())
      continue;
    Json record = Json::parse(line, nullptr, false);
    if (!record.is_object() || !record.contains("step") ||
        !record["step"].is_number_integer()) {
      if (text.empty())
        break; // being written
      return Status::error("{}:{}: not a record of metrics", path, number);
    }
    records.push_back(std::move(record));
  }
  return records;
}

StatusOr<Json> metricsColumns(std::string_view text, const std::string &path,
                              std::size_t mostRows) {
  auto records = metricsRecords(text, path);
  if (!records.ok())
    return records.status();
  // A record with an evaluation is never dropped.
  const std::size_t every = (records->size() + mostRows - 1) / mostRows;
  Json columns = Json::object();
  for (const char *key : kNumbers)
    columns[key] = Json::array();
  for (std::size_t i = 0; i < records->size(); ++i) {
    const Json &record = (*records)[i];
    if (every > 1 && i % every != 0 && !record.contains("eval_loss"))
      continue;
    for (const char *key : kNumbers)
      columns[key].push_back(numberOf(record, key));
    if (record.contains("router") && record["router"].is_object())
      for (const auto &[name, values] : record["router"].items()) {
        Json &column = columns["router." + name];
        while (column.size() + 1 < columns["step"].size())
          column.push_back(nullptr);
        column.push_back(values);
      }
  }
  columns["every"] = std::max<std::size_t>(every, 1);
  return columns;
}

StatusOr<Json> runReport(const std::string &run) {
  const std::string path = run + "/metrics.jsonl";
  auto text = readTextFile(path, kMostMetricsBytes);
  if (!text.ok())
    return text.status();
  auto metrics = metricsColumns(*text, path);
  if (!metrics.ok())
    return metrics.status();
  const std::string name = fs::path(run).lexically_normal().filename().string();
  Json json = {{"kind", "run"},
               {"title", "run " + (name.empty() ? run : name)},
               {"metrics", metrics.take()}};
  if (auto memory = readTextFile(run + "/memory.json", kMostFileBytes);
      memory.ok())
    json["memory"] = Json::parse(*memory, nullptr, false);
  if (auto recipe = readTextFile(run + "/recipe.yaml", kMostFileBytes);
      recipe.ok())
    json["recipe"] = *recipe;
  std::vector<std::string> checkpoints;
  std::error_code error;
  for (const auto &entry : fs::directory_iterator(run, error))
    if (entry.path().filename().string().starts_with("step-"))
      checkpoints.push_back(entry.path().filename().string());
  std::ranges::sort(checkpoints);
  json["checkpoints"] = checkpoints;
  return json;
}

} // namespace tessera::report
