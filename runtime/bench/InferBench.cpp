#include "runtime/bench/InferBench.h"
#include "runtime/bench/ReadBandwidth.h"
#include "runtime/support/PeakFlops.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <numeric>
#include <optional>

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Tokens that are decoded between two looks at the bandwidth.
constexpr int64_t kSlice = 8;

/// What passed on the clock, and what of it this process had processors, all
/// threads together.
struct Elapsed {
  double wall = 0, processor = 0; ///< seconds
};

class Stopwatch {
public:
  Elapsed elapsed() const {
    return {std::chrono::duration<double>(Clock::now() - start).count(),
            processorSeconds() - before};
  }

private:
  static double processorSeconds() {
    timespec used{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return double(used.tv_sec) + 1e-9 * double(used.tv_nsec);
  }
  Clock::time_point start = Clock::now();
  double before = processorSeconds();
};

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
                          decoder.shape().vocab)),
        likeliest(static_cast<std::size_t>(options.batch)) {
    for (TokenSampling &each : likeliest)
      each.choices = decoder.shape().vocab;
  }

  StatusOr<InferBenchResult> run();

private:
  Status measurePrompt(InferTest &test);
  /// `memory` is null without limits.
  Status measureDecoding(ReadBandwidth *memory, InferTest &test);
  StatusOr<Elapsed> readPrompt();
  /// A batch of sequences, which get token after token of [at, end).
  Status decode(std::span<Sequence *const> sequences, int64_t at, int64_t end);
  /// `work` in so much time, of a limit for it.
  struct Reached {
    std::vector<double> wall, processor;
  };
  void add(Reached &reached, double work, const Elapsed &time, double limit,
           double limitBusy) const {
    if (!options.hasLimits)
      return;
    reached.wall.push_back(work / time.wall / limit);
    reached.processor.push_back(work * options.threads / time.processor /
                                limitBusy);
  }
  /// FLOPs a second; 0 without limits.
  double peak();
  /// Sets a test's limit and what was reached of it, if it was measured.
  void summarize(InferTest &test, const std::vector<double> &limits,
                 const Reached &reached) const;
  /// A token is chosen for each sequence, as when text is generated, though
  /// another one follows.
  Wanted wanted(std::size_t sequences = 1) const {
    return {.logits = false,
            .samplings = std::span(likeliest).first(sequences)};
  }

  Decoder &decoder;
  const InferCost &cost;
  const InferBenchOptions &options;
  std::vector<int32_t> tokens;
  std::vector<TokenSampling> likeliest; ///< one a sequence
  InferBenchResult result;
};

double Bench::peak() {
  if (!options.hasLimits)
    return 0;
  PeakFlops measured =
      measurePeakFlops(options.peakType, options.threads, options.vectorBits);
  result.instruction = measured.instruction;
  return measured.perSecond;
}

void Bench::summarize(InferTest &test, const std::vector<double> &limits,
                      const Reached &reached) const {
  if (!options.hasLimits)
    return;
  test.limit = medianOf(limits);
  test.ofLimit = medianOf(reached.wall);
  test.ofLimitBusy = medianOf(reached.processor);
}

StatusOr<Elapsed> Bench::readPrompt() {
  Sequence text;
  const Stopwatch watch;
  Status status = decoder.read(
      text, std::span(tokens).first(std::size_t(options.prompt)), wanted());
  const Elapsed time = watch.elapsed();
  decoder.release(text);
  if (!status.ok())
    return status;
  return time;
}

Status Bench::measurePrompt(InferTest &test) {
  // The first touches every page.
  if (auto warm = readPrompt(); !warm.ok())
    return warm.status();
  options.warmedUp(test.name);
  Reached reached;
  std::vector<double> limits{peak()};
  for (unsigned i = 0; i < options.repeat; ++i) {
    StatusOr<Elapsed> time = readPrompt();
    if (!time.ok())
      return time.status();
    limits.push_back(peak());
    // The best round of several: other programs take nothing from it.
    const double limit = (limits[i] + limits[i + 1]) / 2;
    test.seconds.push_back(time->wall);
    test.rates.push_back(double(options.prompt) / time->wall);
    add(reached, cost.promptFlops, *time, limit, limit);
  }
  summarize(test, limits, reached);
  return Status::success();
}

Status Bench::decode(std::span<Sequence *const> sequences, int64_t at,
                     int64_t end) {
  std::vector<int32_t> next(sequences.size());
  for (; at < end; ++at) {
    // Not the same in all, so that experts are not either.
    for (std::size_t i = 0; i < next.size(); ++i)
      next[i] = tokens[(std::size_t(at) + i) % tokens.size()];
    TESSERA_RETURN_IF_ERROR(
        decoder.step(sequences, next, wanted(sequences.size())));
  }
  return Status::success();
}

Status Bench::measureDecoding(ReadBandwidth *memory, InferTest &test) {
  auto read = [&] {
    const Stopwatch watch;
    if (memory)
      memory->read();
    return watch.elapsed();
  };
  const auto buffer = memory ? double(memory->bytes()) : 0;
  Reached reached;
  std::vector<double> limits;
  Elapsed before = read();
  // One repetition more than is counted, to warm up.
  for (unsigned i = 0; i <= options.repeat; ++i) {
    std::vector<Sequence> sequences(static_cast<std::size_t>(options.batch));
    std::vector<Sequence *> batch;
    for (Sequence &each : sequences)
      batch.push_back(&each);
    auto release = [&] {
      for (Sequence &each : sequences)
        decoder.release(each);
    };
    double total = 0;
    for (int64_t at = 0; at < options.generate; at += kSlice) {
      const int64_t end = std::min(at + kSlice, options.generate);
      const Stopwatch watch;
      if (Status status = decode(batch, at, end); !status.ok()) {
        release();
        return status;
      }
      const Elapsed time = watch.elapsed();
      const Elapsed after = read();
      const Elapsed reads{before.wall + after.wall,
                          before.processor + after.processor};
      before = after;
      total += time.wall;
      if (i == 0)
        continue;
      limits.push_back(2 * buffer / reads.wall);
      // Token t reads what the t before it left in the cache.
      const double cached = double(options.batch) * double(at + end - 1) / 2;
      // States are read and written.
      const double states = 2 * cost.stateBytes * double(options.batch);
      const double bytes = double(end - at) * (cost.weightBytes + states +
                                               cost.cacheBytes * cached);
      add(reached, bytes, time, limits.back(),
          2 * buffer * options.threads / reads.processor);
    }
    release();
    if (i == 0) {
      options.warmedUp(test.name);
      continue;
    }
    test.seconds.push_back(total);
    test.rates.push_back(double(options.generate * options.batch) / total);
  }
  summarize(test, limits, reached);
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
    std::optional<ReadBandwidth> memory;
    if (options.hasLimits) {
      auto created = ReadBandwidth::create(options.threads);
      if (!created.ok())
        return created.status();
      memory = created.take();
    }
    InferTest test;
    test.name = fmt::format("tg{}", options.generate);
    if (options.batch > 1)
      test.name += fmt::format("x{}", options.batch);
    TESSERA_RETURN_IF_ERROR(measureDecoding(memory ? &*memory : nullptr, test));
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
