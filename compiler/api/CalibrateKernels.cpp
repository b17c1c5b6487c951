#include "compiler/api/CalibrateKernels.h"
#include "compiler/Driver.h"
#include "compiler/api/LocalTargets.h"
#include "compiler/report/SharedCores.h"
#include "runtime/bench/KernelBench.h"
#include "runtime/support/Text.h"
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>

using namespace tessera;
using planner::KernelKind;

namespace {

/// A transformer of one layer, and the batch it trains on.
struct Shape {
  int64_t hidden, heads, vocab, micro, sequence;
  const char *precision = "fp32";
};

// Widths of shards and of whole small models, batches of one sequence and of
// many.
constexpr Shape kShapes[] = {
    {32, 1, 512, 1, 64},           {32, 1, 512, 8, 64},
    {64, 2, 1024, 1, 64},          {64, 2, 1024, 8, 64},
    {128, 4, 4096, 1, 64},         {128, 4, 4096, 8, 64},
    {256, 4, 2048, 2, 256},        {512, 8, 1024, 8, 64},
    {64, 2, 1024, 1, 64, "bf16"},  {128, 4, 4096, 8, 64, "bf16"},
    {512, 8, 1024, 4, 64, "bf16"},
};
// Of which all cores are measured, too.
constexpr size_t kLargest = 7;
constexpr uint64_t kRepeats = 15;
constexpr int kRounds = 3;
// More than a core's own caches, so that operands are where other launches
// leave them: in the shared cache.
constexpr uint64_t kFlushBytes = uint64_t(8) << 20;

/// A folder that is removed at the end.
class Scratch {
public:
  Scratch() {
    std::string name =
        (std::filesystem::temp_directory_path() / "tessera-XXXXXX").string();
    if (mkdtemp(name.data()))
      path = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  std::string path;
};

} // namespace

static std::string configOf(const Shape &shape) {
  return fmt::format(
      R"({{"architectures":["GPT2LMHeadModel"],"model_type":"gpt2",)"
      R"("vocab_size":{},"n_positions":{},"n_embd":{},"n_layer":1,)"
      R"("n_head":{},"activation_function":"gelu_new",)"
      R"("layer_norm_epsilon":1e-05,"initializer_range":0.02,)"
      R"("embd_pdrop":0.0,"attn_pdrop":0.0,"resid_pdrop":0.0,)"
      R"("tie_word_embeddings":true}})",
      shape.vocab, shape.sequence, shape.hidden, shape.heads);
}

static Status compileShape(const Shape &shape, const std::string &to) {
  CompileRequest request;
  request.spec = "calibration";
  request.configText = configOf(shape);
  request.set = {fmt::format("batch.micro={}", shape.micro),
                 fmt::format("batch.sequence={}", shape.sequence),
                 fmt::format("precision.compute={}", shape.precision)};
  request.output = to;
  request.executable = false;
  request.targets = localTargets("cpu");
  llvm::Expected<CompileSummary> summary = compile(request);
  if (!summary)
    return Status::error("{}", llvm::toString(summary.takeError()));
  return Status::success();
}

namespace {

/// What was measured so far.
struct Samples {
  KernelSamples all;
  /// Of the largest shape's kernels; the best of several rounds, since other
  /// processes take cores more often than one core.
  double speedup = 1;

  Status measure(const std::string &file, bool isLargest);
};

Status Samples::measure(const std::string &file, bool isLargest) {
  auto reader = ArtifactReader::open(file);
  if (!reader.ok())
    return reader.status();
  const artifact::DeviceCode *code = reader->device("cpu");
  double one = 0; // seconds on one thread
  for (int round = 0; round < (isLargest ? 2 * kRounds : 1); ++round) {
    const unsigned threads = round % 2 == 0 ? 1 : 0;
    bench::KernelBenchOptions options;
    options.device = "cpu";
    options.program = "train_step";
    options.threads = threads;
    options.repeats = kRepeats;
    options.flushBytes = kFlushBytes;
    auto result = bench::benchKernels(*reader, options);
    if (!result.ok())
      return result.status();
    double sum = 0;
    for (const bench::KernelTime &time : result->kernels) {
      sum += time.all();
      const artifact::Kernel *kernel = artifact::findKernel(*code, time.name);
      if (round == 0 && kernel && time.seconds > 0)
        all[size_t(report::kernelKindOf(*kernel))].push_back(
            {time.flops, time.bytes, time.seconds});
    }
    if (threads == 1)
      one = sum;
    else
      speedup = std::max(speedup, one / sum);
  }
  return Status::success();
}

} // namespace

KernelCalibration tessera::fitKernels(const KernelSamples &all,
                                      double speedup) {
  KernelCalibration result;
  std::vector<double> ratios;
  for (size_t kind = 0; kind < all.size(); ++kind) {
    // Without native bf16 the compiler may keep no matmul in it.
    const auto &samples = all[kind].empty() ? all[0] : all[kind];
    result.rates[kind] = bench::fitRate(samples);
    result.kernels += all[kind].size();
    for (const bench::RateSample &sample : all[kind])
      ratios.push_back(result.rates[kind].seconds(sample.work, sample.traffic) /
                       sample.seconds);
  }
  std::ranges::sort(ratios);
  result.low = ratios[ratios.size() / 4];
  result.high = ratios[ratios.size() * 3 / 4];
  result.speedup = speedup;
  return result;
}

StatusOr<KernelCalibration> tessera::calibrateKernels() {
  Scratch scratch;
  if (scratch.path.empty())
    return Status::error("cannot make a temporary folder in {}",
                         std::filesystem::temp_directory_path().string());
  Samples samples;
  for (size_t i = 0; i < std::size(kShapes); ++i) {
    const std::string file = fmt::format("{}/{}.tsr", scratch.path, i);
    TESSERA_RETURN_IF_ERROR(compileShape(kShapes[i], file));
    TESSERA_RETURN_IF_ERROR(samples.measure(file, i == kLargest));
  }
  return fitKernels(samples.all, samples.speedup);
}
