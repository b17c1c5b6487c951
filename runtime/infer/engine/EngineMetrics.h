// An engine's metrics, under the names that dashboards of other servers use
// (docs/serving.md lists them).
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// A Prometheus histogram: counts of values up to each bound.
class Histogram {
public:
  explicit Histogram(std::span<const double> bounds)
      : bounds(bounds), counts(bounds.size() + 1) {}
  void add(double value);
  /// `name`_bucket, _sum and _count in Prometheus' text format.
  void print(std::string_view name, std::string_view help,
             std::string &out) const;
  uint64_t count() const;

private:
  std::span<const double> bounds; ///< ascending, of static storage
  std::vector<uint64_t> counts;   ///< the last one: above all bounds
  double sum = 0;
};

/// Seconds, from the latency of a token to that of a slow request.
std::span<const double> tokenSeconds();
std::span<const double> requestSeconds();

struct EngineMetrics {
  int64_t running = 0, waiting = 0; ///< now
  int64_t pagesUsed = 0, pages = 0; ///< now; cached unused pages are free
  int64_t pagesKept = 0; ///< now; unused pages kept in the prefix cache
  uint64_t prefixQueries = 0, prefixHits = 0; ///< tokens
  uint64_t preemptions = 0;
  uint64_t promptTokens = 0, generatedTokens = 0;
  /// Of NgramDraft; each accepted token saves a step of the model.
  uint64_t draftTokens = 0, acceptedTokens = 0;
  uint64_t iterations = 0;
  /// When the last prefill chunk or token was computed.
  std::optional<std::chrono::steady_clock::time_point> lastComputed;
  /// By FinishReason.
  std::vector<uint64_t> finished = std::vector<uint64_t>(6);
  Histogram firstToken{tokenSeconds()}, interToken{tokenSeconds()};
  Histogram endToEnd{requestSeconds()}, queue{requestSeconds()};
  Histogram prefill{requestSeconds()}, decode{requestSeconds()};

  /// All metrics in Prometheus' text format, every name with the prefix
  /// `tessera:`.
  std::string print() const;
};

} // namespace tessera
