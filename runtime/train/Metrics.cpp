#include "runtime/train/Metrics.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "runtime/data/FileOperations.h"
#include "runtime/train/Distill.h"
#include "runtime/train/Kto.h"
#include "runtime/train/Policy.h"
#include "runtime/train/Preference.h"
#include "runtime/train/Router.h"

namespace tessera {
namespace {

/// Every line begins with this, which is how steps are found again.
constexpr std::string_view kLineStart = "{\"step\":";
/// A terminal that is written to for every short step slows the run down.
constexpr auto kRedrawInterval = std::chrono::milliseconds(50);
constexpr std::size_t kMaxLogBytes = std::size_t(4) << 30;

/// JSON has no infinity and no NaN. What fp32 holds is written with as many
/// digits as fp32 has.
std::string jsonNumber(double value) {
  if (!std::isfinite(value))
    return "null";
  const auto narrow = float(value);
  return double(narrow) == value ? fmt::format("{}", narrow)
                                 : fmt::format("{}", value);
}

/// {"max_load":[1.2,1.1],"dead":[0,0],…}: each column, layer by layer.
std::string routerText(std::span<const float> table) {
  std::string text;
  for (std::size_t column = 0; column < kRouterColumns; ++column) {
    std::vector<std::string> numbers;
    for (std::size_t at = column; at < table.size(); at += kRouterColumns)
      numbers.push_back(jsonNumber(table[at]));
    text += fmt::format("{}\"{}\":[{}]", column ? "," : "{",
                        kRouterColumnNames[column], fmt::join(numbers, ","));
  }
  return text + "}";
}

/// A table's columns: {"accuracy":0.5,"margin":0.01,…}
std::string columnsText(std::span<const std::string_view> names,
                        std::span<const float> columns) {
  std::string text;
  for (std::size_t i = 0; i < columns.size(); ++i)
    text += fmt::format("{}\"{}\":{}", i ? "," : "{", names[i],
                        jsonNumber(columns[i]));
  return text + "}";
}

/// {"reward":0.5,"reward_deviation":0.1,…}
std::string
rolloutText(std::span<const std::pair<std::string_view, double>> values) {
  std::string text;
  for (const auto &[name, value] : values)
    text += fmt::format("{}\"{}\":{}", text.empty() ? "{" : ",", name,
                        jsonNumber(value));
  return text + "}";
}

/// The greatest load of an expert over the mean of its layer.
float worstLoad(std::span<const float> table) {
  float worst = 0;
  for (std::size_t at = std::size_t(RouterColumn::maxLoad); at < table.size();
       at += kRouterColumns)
    worst = std::max(worst, table[at]);
  return worst;
}

/// Bytes of the whole lines whose step is at most `step`.
std::size_t keptBytes(std::string_view text, uint64_t step) {
  std::size_t kept = 0;
  for (;;) {
    std::size_t end = text.find('\n', kept);
    std::string_view line = text.substr(kept, end - kept);
    if (end == text.npos || !line.starts_with(kLineStart))
      return kept;
    line.remove_prefix(kLineStart.size());
    uint64_t found = 0;
    auto [rest, code] =
        std::from_chars(line.data(), line.data() + line.size(), found);
    if (code != std::errc() || found > step)
      return kept;
    kept = end + 1;
  }
}

} // namespace

std::string printMetrics(const MetricsRecord &record) {
  std::string line = fmt::format("{}{}", kLineStart, record.step);
  auto add = [&](const char *key, const std::string &value) {
    line += fmt::format(",\"{}\":{}", key, value);
  };
  if (record.loss) {
    add("loss", jsonNumber(*record.loss));
    add("grad_norm", jsonNumber(record.gradNorm.value_or(0)));
    add("lr", jsonNumber(record.lr.value_or(0)));
  }
  add("tokens", std::to_string(record.tokens));
  if (record.loss) {
    add("tokens_per_s", fmt::format("{:.1f}", record.tokensPerSecond));
    add("goodput", fmt::format("{:.1f}", record.goodput));
    add("step_time", fmt::format("{:.6f}", record.stepSeconds));
    add("wait_time", fmt::format("{:.6f}", record.waitSeconds));
  }
  if (record.mfu)
    add("mfu", fmt::format("{:.4f}", *record.mfu));
  if (record.hfu)
    add("hfu", fmt::format("{:.4f}", *record.hfu));
  add("peak_bytes", std::to_string(record.peakBytes));
  if (record.evalLoss)
    add("eval_loss", jsonNumber(*record.evalLoss));
  if (!record.router.empty())
    add("router", routerText(record.router));
  if (!record.preference.empty())
    add("preference", columnsText(kPreferenceColumnNames, record.preference));
  if (!record.policy.empty())
    add("policy",
        columnsText(policyColumnNames(record.policy.size()), record.policy));
  if (!record.kto.empty())
    add("kto", columnsText(kKtoColumnNames, record.kto));
  if (!record.distill.empty())
    add("distill", columnsText(kDistillColumnNames, record.distill));
  if (!record.rollout.empty())
    add("rollout", rolloutText(record.rollout));
  return line + "}";
}

std::string printExactMetrics(const MetricsRecord &record) {
  return fmt::format("step {} loss {:a} grad_norm {:a} lr {:a}", record.step,
                     record.loss.value_or(NAN), record.gradNorm.value_or(NAN),
                     record.lr.value_or(NAN));
}

StatusOr<MetricsLog> MetricsLog::open(const std::string &run, uint64_t step) {
  std::string path = run + "/metrics.jsonl";
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0)
    return Status::error("cannot open '{}': {}", path, std::strerror(errno));
  MetricsLog log(path, fd);
  StatusOr<std::string> text = readFile(path, kMaxLogBytes);
  if (!text.ok())
    return text.status();
  if (::ftruncate(fd, off_t(keptBytes(*text, step))) != 0)
    return Status::error("cannot cut '{}' back to step {}: {}", path, step,
                         std::strerror(errno));
  return log;
}

MetricsLog::~MetricsLog() {
  if (fd >= 0)
    ::close(fd);
}

Status MetricsLog::append(const MetricsRecord &record) {
  std::string line = printMetrics(record) + "\n";
  return systemFiles().write(
      fd, std::as_bytes(std::span(line.data(), line.size())), path);
}

std::string shortNumber(double value) {
  constexpr std::array<const char *, 5> suffixes = {"", "k", "M", "G", "T"};
  std::size_t index = 0;
  while (value >= 999.5 && index + 1 < suffixes.size()) {
    value /= 1000;
    ++index;
  }
  int decimals = index == 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, suffixes[index]);
}

std::string byteText(uint64_t bytes) {
  constexpr std::array<const char *, 5> units = {"B", "KiB", "MiB", "GiB",
                                                 "TiB"};
  double value = double(bytes);
  std::size_t index = 0;
  while (value >= 1024 && index + 1 < units.size()) {
    value /= 1024;
    ++index;
  }
  return fmt::format("{:.{}f} {}", value, index == 0 ? 0 : 2, units[index]);
}

std::string durationText(double seconds) {
  auto whole = uint64_t(std::max(0.0, std::round(seconds)));
  uint64_t hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours)
    return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string progressLine(const MetricsRecord &record, uint64_t lastStep,
                         double secondsPerStep,
                         std::optional<double> evalLoss) {
  std::string line = fmt::format("step {}/{}", record.step, lastStep);
  if (record.loss)
    line += fmt::format("  loss {:.4f}", *record.loss);
  if (evalLoss)
    line += fmt::format("  held-out {:.4f}", *evalLoss);
  if (record.lr)
    line += fmt::format("  lr {:.2e}", *record.lr);
  if (record.loss)
    line += fmt::format("  {} tokens/s", shortNumber(record.tokensPerSecond));
  if (!record.router.empty())
    line += fmt::format("  load {:.1f}x", worstLoad(record.router));
  if (!record.preference.empty())
    line +=
        fmt::format("  accuracy {:.2f}",
                    record.preference[std::size_t(PreferenceColumn::accuracy)]);
  if (!record.distill.empty())
    line += fmt::format("  agreement {:.2f}",
                        record.distill[std::size_t(DistillColumn::agreement)]);
  if (!record.rollout.empty())
    line += fmt::format("  {} {:.3f}", record.rollout.front().first,
                        record.rollout.front().second);
  for (const auto &[name, value] : record.rollout)
    if (name == kHeldOutReward)
      line += fmt::format("  held-out {:.3f}", value);
  if (!record.policy.empty())
    line += fmt::format("  kl {:.2e}",
                        record.policy[std::size_t(PolicyColumn::kl)]);
  if (record.mfu)
    line += fmt::format("  mfu {:.1f} %", *record.mfu * 100);
  if (record.loss && lastStep > record.step)
    line +=
        fmt::format("  eta {}", durationText(secondsPerStep *
                                             double(lastStep - record.step)));
  return line;
}

void Progress::step(const MetricsRecord &record, uint64_t lastStep) {
  if (record.evalLoss)
    evalLoss = record.evalLoss;
  // The first steps touch fresh memory; the average forgets them soon.
  const double seconds = record.stepSeconds + record.waitSeconds;
  smoothedSeconds =
      smoothedSeconds == 0 ? seconds : 0.9 * smoothedSeconds + 0.1 * seconds;
  if (style == Style::none)
    return;
  auto now = std::chrono::steady_clock::now();
  if (style == Style::live && record.step != lastStep && !record.evalLoss &&
      now - drawn < kRedrawInterval)
    return;
  std::string line = progressLine(record, lastStep, smoothedSeconds, evalLoss);
  if (style == Style::live) {
    drawn = now;
    // Return to the line's start, write, erase what is left of the old one.
    fmt::print(stderr, "\r{}\x1b[K", line);
    std::fflush(stderr);
    lineOpen = true;
    return;
  }
  if (record.step % every == 0 || record.step == lastStep || record.step == 1 ||
      record.evalLoss)
    fmt::print(stderr, "{}\n", line);
}

void Progress::finish() {
  if (lineOpen)
    fmt::print(stderr, "\n");
  lineOpen = false;
}

} // namespace tessera
