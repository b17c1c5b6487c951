// Prefill and decode speed at the sizes of llama-bench (pp512, tg128), next to
// the machine's limits as measured in the same run: memory bandwidth for
// decode, multiply-adds of the cores for prefill.
#pragma once
#include "runtime/infer/Decoder.h"
#include "runtime/support/PeakFlops.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::bench {

struct InferBenchOptions {
  int64_t prompt = 512;   ///< tokens of a prompt; 0: not measured
  int64_t generate = 128; ///< tokens after nothing; 0: not measured
  int64_t batch = 1;      ///< sequences that decode together
  unsigned repeat = 5;
  unsigned threads = 1;
  unsigned vectorBits = 512; ///< of the code that runs
  /// What that code multiplies with.
  PeakType peakType = PeakType::fp32;
  /// Against the machine's limits; of one of several ranks, which share the
  /// machine, only rates are measured.
  bool hasLimits = true;
  /// Called with a test after its warm-up.
  std::function<void(std::string_view name)> warmedUp = [](auto) {};
};

/// The bytes that a model must read and the FLOPs that it must execute, by any
/// implementation.
struct InferCost {
  double weightBytes = 0; ///< read by a step of decoding; of experts expected
  double cacheBytes = 0;  ///< of one token's keys and values
  double stateBytes = 0;  ///< of one sequence's recurrent states
  double promptFlops = 0; ///< of the whole prompt, logits of its last token
};

/// One test. Rates are of all repetitions, ratios medians of parts of them,
/// each against the limit that was measured right before and after it.
struct InferTest {
  std::string name;            ///< "pp512", "tg128", "tg128x8" of a batch of 8
  std::vector<double> seconds; ///< one a repetition
  std::vector<double> rates;   ///< tokens a second, one a repetition
  double limit = 0;   ///< bytes or FLOPs a second, the median; 0: not measured
  double ofLimit = 0; ///< what was reached of it, by the clock
  /// The same by the time in which this process had processors: for machines
  /// that others use too.
  double ofLimitBusy = 0;
};

double meanOf(const std::vector<double> &values);
/// Of a sample; 0 for a single one.
double deviationOf(const std::vector<double> &values);

struct InferBenchResult {
  std::vector<InferTest> tests;
  const char *instruction = ""; ///< of the FLOP limit
};

/// The decoder's cache must hold a sequence of either length, and a batch of
/// those that are generated.
StatusOr<InferBenchResult> benchInfer(Decoder &decoder, const InferCost &cost,
                                      const InferBenchOptions &options);

} // namespace tessera::bench
