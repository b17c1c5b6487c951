// A server under load, measured and named as in `vllm bench serve`:
// time to the first token (TTFT), time per token after it (TPOT), time between
// two chunks of a stream (ITL), and from end to end (E2EL).
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::bench {

struct BenchServeOptions {
  std::string url;
  /// Requests take turns; empty: the first that the server has.
  std::vector<std::string> models;
  std::string key;   ///< empty: none
  bool chat = false; ///< chat completions instead of completions
  double rate = 0;   ///< requests a second (Poisson); 0: all at once
  int64_t requests = 100;
  int64_t concurrency = 32; ///< requests at a time, at most
  int64_t words = 64;       ///< of a prompt
  int64_t maxTokens = 32;   ///< all of which are generated
  uint64_t seed = 0;        ///< of prompts and arrivals
  int64_t timeoutSeconds = 600;
  bool json = false;
};

/// Of one request; times in milliseconds.
struct RequestTimes {
  std::string error; ///< empty: it was answered
  double first = 0, total = 0;
  std::vector<double> between; ///< two chunks
  int64_t promptTokens = 0, generatedTokens = 0;
};

/// Milliseconds of all requests.
struct Summary {
  double mean = 0, median = 0, deviation = 0, p95 = 0, p99 = 0;
};
/// Percentiles are interpolated between the two nearest values; nullopt without
/// values.
std::optional<Summary> summarize(std::vector<double> values);

struct LoadResult {
  double seconds = 0;
  std::string model; ///< or several, separated by commas
  std::vector<RequestTimes> requests;
};

StatusOr<LoadResult> runLoad(const BenchServeOptions &options);
/// The table, or the JSON in vLLM's names.
std::string printLoad(const BenchServeOptions &options,
                      const LoadResult &result);

/// Runs the load and prints the result to stdout. Then failed requests are an
/// error.
Status benchServe(const BenchServeOptions &options);

} // namespace tessera::bench
