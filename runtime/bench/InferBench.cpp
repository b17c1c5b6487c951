#include "runtime/bench/InferBench.h"
#include "runtime/bench/ReadBandwidth.h"
#include "runtime/support/PeakFlops.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Tokens that are decoded between two looks at the bandwidth.
constexpr int64_t kSlice = 8;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The middle value, the upper one of two.
double medianOf(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Any tokens: kernels take as long for all.
std::vector<int32_t> someTokens(int64_t count, int64_t vocab) {
  std::vector<int32_t> tokens(static_cast<std::size_t>(count));
  uint64_t state = 12345;
  for (int32_t &token : tokens) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    token = static_cast<int32_t>((state >> 33) % uint64_t(vocab));
  }
  return tokens;
}

class Bench {
public:
  Bench(Decoder &decoder, const InferCost &cost,
        const InferBenchOptions &options)
      : decoder(decoder), cost(cost), options(options),
        tokens(someTokens(std::max(options.prompt, options.generate),
                          decoder.shape().vocab)) {}

  StatusOr<InferBenchResult> run();

private:
  Status measurePrompt(InferTest &test);
  Status measureDecoding(ReadBandwidth &memory, InferTest &test);
  StatusOr<double> readPrompt();
  double peak();

  Decoder &decoder;
  const InferCost &cost;
  const InferBenchOptions &options;
  std::vector<int32_t> tokens;
  InferBenchResult result;
};

double Bench::peak() {
  PeakFlops measured =
      measurePeakFlops(options.bf16Dot ? PeakType::bf16 : PeakType::fp32,
                       options.threads, options.vectorBits);
  result.instruction = measured.instruction;
  return measured.perSecond;
}

StatusOr<double> Bench::readPrompt() {
  Sequence text;
  const auto start = Clock::now();
  Status status =
      decoder.read(text, std::span(tokens).first(std::size_t(options.prompt)));
  const double seconds = secondsSince(start);
  decoder.release(text);
  if (!status.ok())
    return status;
  return seconds;
}

Status Bench::measurePrompt(InferTest &test) {
  // The first touches every page.
  if (auto warm = readPrompt(); !warm.ok())
    return warm.status();
  std::vector<double> limits{peak()}, ratios;
  for (unsigned i = 0; i < options.repeat; ++i) {
    StatusOr<double> seconds = readPrompt();
    if (!seconds.ok())
      return seconds.status();
    limits.push_back(peak());
    const double limit = (limits[i] + limits[i + 1]) / 2;
    test.seconds.push_back(*seconds);
    test.rates.push_back(double(options.prompt) / *seconds);
    ratios.push_back(cost.promptFlops / *seconds / limit);
  }
  test.limit = medianOf(limits);
  test.ofLimit = medianOf(ratios);
  return Status::success();
}

Status Bench::measureDecoding(ReadBandwidth &memory, InferTest &test) {
  std::vector<double> limits{memory.measure()}, ratios;
  // One repetition more than is counted, to warm up.
  for (unsigned i = 0; i <= options.repeat; ++i) {
    Sequence text;
    Sequence *const one[] = {&text};
    double total = 0;
    for (int64_t at = 0; at < options.generate;) {
      const int64_t end = std::min(at + kSlice, options.generate);
      double bytes = 0;
      const auto start = Clock::now();
      for (; at < end; ++at) {
        if (Status status = decoder.step(
                one, std::span(tokens).subspan(std::size_t(at), 1));
            !status.ok()) {
          decoder.release(text);
          return status;
        }
        bytes += cost.weightBytes + cost.cacheBytes * double(at);
      }
      const double seconds = secondsSince(start);
      total += seconds;
      limits.push_back(memory.measure());
      const double limit = (limits.back() + limits[limits.size() - 2]) / 2;
      if (i > 0)
        ratios.push_back(bytes / seconds / limit);
    }
    decoder.release(text);
    if (i == 0)
      continue;
    test.seconds.push_back(total);
    test.rates.push_back(double(options.generate) / total);
  }
  test.limit = medianOf(limits);
  test.ofLimit = medianOf(ratios);
  return Status::success();
}

StatusOr<InferBenchResult> Bench::run() {
  if (options.prompt > 0) {
    InferTest test;
    test.name = fmt::format("pp{}", options.prompt);
    TESSERA_RETURN_IF_ERROR(measurePrompt(test));
    result.tests.push_back(std::move(test));
  }
  if (options.generate > 0) {
    auto memory = ReadBandwidth::create(options.threads);
    if (!memory.ok())
      return memory.status();
    InferTest test;
    test.name = fmt::format("tg{}", options.generate);
    TESSERA_RETURN_IF_ERROR(measureDecoding(*memory, test));
    result.tests.push_back(std::move(test));
  }
  return std::move(result);
}

} // namespace

double meanOf(const std::vector<double> &values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         double(values.size());
}

double deviationOf(const std::vector<double> &values) {
  if (values.size() < 2)
    return 0;
  const double mean = meanOf(values);
  double squares = 0;
  for (double value : values)
    squares += (value - mean) * (value - mean);
  return std::sqrt(squares / double(values.size() - 1));
}

StatusOr<InferBenchResult> benchInfer(Decoder &decoder, const InferCost &cost,
                                      const InferBenchOptions &options) {
  return Bench(decoder, cost, options).run();
}

} // namespace tessera::bench
