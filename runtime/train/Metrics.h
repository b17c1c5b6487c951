// Metrics of a run: metrics.jsonl for programs, a progress line for display.
#pragma once
#include "runtime/support/Status.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

/// Among MetricsRecord::rollout, in steps that measured it.
inline constexpr std::string_view kHeldOutReward = "eval_reward";

/// One line of metrics.jsonl. A record of step 0 holds only the evaluation
/// before training.
struct MetricsRecord {
  uint64_t step = 0;
  std::optional<double> loss; ///< as StepMetrics has it; of tokens in nats
  std::optional<double> gradNorm;
  std::optional<double> lr;
  uint64_t tokens = 0;        ///< unmasked, since the run's beginning
  double tokensPerSecond = 0; ///< of this step
  double stepSeconds = 0;
  double waitSeconds = 0; ///< for this step's batch to be read
  /// Tokens of this process's steps ÷ wall-clock since its first: reading,
  /// evaluating and saving included.
  double goodput = 0;
  std::optional<double> mfu; ///< model FLOPs ÷ time of this step ÷ peak
  std::optional<double> hfu; ///< likewise of the kernels: with recomputation
  uint64_t peakBytes = 0;    ///< largest resident set so far
  std::optional<double> evalLoss;
  /// Rows of kRouterColumns (runtime/train/Router.h), one for each layer with
  /// experts; empty for models without.
  std::vector<float> router;
  /// kPreferenceColumns or kRewardColumns numbers
  /// (runtime/train/Preference.h), or none.
  std::vector<float> preference;
  /// As StepMetrics has them, or none.
  std::vector<float> policy, kto;
  /// Of `tessera rl`: what the step learned from, by name; the first is
  /// on the progress line.
  std::vector<std::pair<std::string_view, double>> rollout;
  /// As StepMetrics has it, or none.
  std::vector<float> distill;
};

/// The record as one line of JSON; numbers read back bit for bit, those that
/// fp32 holds as fp32.
std::string printMetrics(const MetricsRecord &record);

/// loss, grad_norm and lr of a step as hexadecimal floats, for comparing runs
/// bit by bit.
std::string printExactMetrics(const MetricsRecord &record);

/// RUN/metrics.jsonl, appended to line by line.
class MetricsLog {
public:
  /// Opens the log of a run at step `step`. Removes lines of later steps, which
  /// remain if a crash followed the last checkpoint, and an incomplete last
  /// line.
  static StatusOr<MetricsLog> open(const std::string &run, uint64_t step);
  MetricsLog(MetricsLog &&other) noexcept
      : path(std::move(other.path)), fd(other.fd) {
    other.fd = -1;
  }
  MetricsLog &operator=(MetricsLog &&) = delete;
  ~MetricsLog();
  Status append(const MetricsRecord &record);

private:
  MetricsLog(std::string path, int fd) : path(std::move(path)), fd(fd) {}
  std::string path;
  int fd;
};

/// Progress on standard error: a line rewritten in place on a terminal, else a
/// line every `every` steps.
class Progress {
public:
  enum class Style : uint8_t { none, plain, live };
  Progress(Style style, uint64_t every) : style(style), every(every) {}
  /// `lastStep` is where the run will end.
  void step(const MetricsRecord &record, uint64_t lastStep);
  /// Ends a live line, so that other output starts on its own.
  void finish();

private:
  Style style;
  uint64_t every;
  double smoothedSeconds = 0; ///< of a step and its batch, not evaluation
  std::optional<double> evalLoss;
  bool lineOpen = false;
  std::chrono::steady_clock::time_point drawn; ///< last time of the live line
};

/// The progress line of a record, without control characters.
std::string progressLine(const MetricsRecord &record, uint64_t lastStep,
                         double secondsPerStep, std::optional<double> evalLoss);

/// "12.4k", "1.20M": three digits with a decimal suffix.
std::string shortNumber(double value);
/// "1.52 GiB".
std::string byteText(uint64_t bytes);
/// "1:02:03" or "2:03".
std::string durationText(double seconds);

} // namespace tessera
