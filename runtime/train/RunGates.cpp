#include "runtime/train/RunGates.h"
#include "runtime/recipe/MetricGate.h"
#include "runtime/support/Text.h"
#include "runtime/train/Checkpoint.h"

#include <algorithm>
#include <filesystem>

namespace tessera {

static std::optional<double> measured(const MetricsRecord &record,
                                      std::string_view metric) {
  if (metric == recipe::kEvalLoss)
    return record.evalLoss;
  for (const auto &[name, value] : record.rollout)
    if (name == kHeldOutReward)
      return value;
  return std::nullopt;
}

GateVerdict judge(const MetricsRecord &record,
                  std::span<const std::string> gates) {
  GateVerdict verdict;
  for (const std::string &text : gates) {
    auto gate = recipe::parseMetricGate(text);
    const auto value =
        gate.ok() ? measured(record, gate->metric) : std::nullopt;
    if (!value)
      return {};
    if (!gate->isPassedBy(*value))
      verdict.missed +=
          fmt::format("{}{}, the value is {:.6g}",
                      verdict.missed.empty() ? "" : "; ", text, *value);
  }
  verdict.isMeasured = true;
  return verdict;
}

Status writePromoted(FileOperations &files, const std::string &run,
                     const std::string &checkpoint) {
  return replaceFile(files, run, kPromotedFile, checkpoint + "\n");
}

StatusOr<std::string> promotedCheckpoint(const std::string &run) {
  constexpr std::size_t kMostBytes = 256;
  const std::string path = run + "/" + kPromotedFile;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return std::string();
  StatusOr<std::string> text = readFile(path, kMostBytes);
  if (!text.ok())
    return text.status();
  const std::string name = text->substr(0, text->find('\n'));
  StatusOr<std::vector<std::string>> present = listCheckpoints(run);
  if (!present.ok())
    return present.status();
  if (std::ranges::count(*present, name) == 0)
    return Status::error("'{}' names {}, which is not a checkpoint of the run; "
                         "remove the file",
                         path, quote(name));
  return name;
}

} // namespace tessera
