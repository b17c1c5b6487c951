#include "runtime/bench/KernelBench.h"
#include "runtime/bench/CachedInputs.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/KernelTable.h"
#include "runtime/artifact/Validate.h"
#include "runtime/bench/KernelPlan.h"
#include "runtime/support/Floats.h"
#include "runtime/support/PeakFlops.h"
#include "runtime/train/RunRecipe.h"
#include "runtime/train/SessionModel.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

namespace tessera::bench {
namespace {

using artifact::ElementType;
using artifact::toView;

/// Counted from the first run of a kernel, which loads its code.
constexpr std::uint64_t kWarmUps = 3;
constexpr std::uint64_t kProgramRuns = 5;

/// Several times the cache of the largest chips of the kind.
constexpr std::uint64_t kGpuFlush = std::uint64_t(256) << 20,
                        kHostFlush = std::uint64_t(64) << 20;

double median(std::vector<double> values) {
  if (values.empty())
    return 0;
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The times of one step, in seconds, without the first `skip`.
std::vector<double> timesOf(const hal::Profile &profile, std::uint32_t step,
                            std::uint64_t skip) {
  std::vector<double> times;
  for (const hal::TraceEvent &event : profile.events())
    if (event.step == step && (skip == 0 || skip-- == 0))
      times.push_back(static_cast<double>(event.duration) * 1e-9);
  return times;
}

/// Bytes of a tensor with elements in (-1, 1), or indices below `indices`.
class RandomTensor {
public:
  explicit RandomTensor(std::int64_t indices) : index(0, indices - 1) {}
  std::span<const std::byte> fill(const hal::TensorInfo &tensor);

private:
  template <typename T, typename Draw>
  void fillWith(std::uint64_t elements, Draw draw) {
    bytes.resize(elements * sizeof(T));
    auto *to = reinterpret_cast<T *>(bytes.data());
    for (std::uint64_t i = 0; i < elements; ++i)
      to[i] = static_cast<T>(draw());
  }
  /// 24 bits of a generator that keeps up with gigabytes.
  float uniform() {
    bits = bits * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<float>(bits >> 40) * 0x1p-23f - 1;
  }

  std::mt19937_64 generator{1};
  std::uniform_int_distribution<std::int64_t> index;
  std::uint64_t bits = 1;
  std::vector<std::byte> bytes;
};

std::span<const std::byte> RandomTensor::fill(const hal::TensorInfo &tensor) {
  const std::uint64_t count = tensor.elements();
  if (tensor.type == ElementType::f32)
    fillWith<float>(count, [&] { return uniform(); });
  else if (tensor.type == ElementType::bf16)
    fillWith<std::uint16_t>(count, [&] { return floatToBf16(uniform()); });
  else if (tensor.type == ElementType::i32)
    fillWith<std::int32_t>(count, [&] { return index(generator); });
  else
    bytes.assign(tensor.bytes, std::byte(0));
  return bytes;
}

bool isForGpus(const ArtifactReader &reader) {
  const auto &devices = *reader.share().devices();
  return std::any_of(
      devices.begin(), devices.end(), [](const artifact::DeviceCode *device) {
        return toView(device->device()).starts_with(artifact::kCudaPrefix);
      });
}

/// One use of the benchmark; the members are set in the order of run().
class Bench {
public:
  Bench(const ArtifactReader &artifact, const KernelBenchOptions &options)
      : artifact(artifact), options(options) {}
  StatusOr<KernelBenchResult> run();

private:
  Status open();
  Status fill();
  Status timeProgram();
  Status timeCopies();
  Status timeKernels();
  Status findPeaks();
  /// Runs a made program once.
  StatusOr<std::unique_ptr<hal::CommandList>> runMade(const KernelPlan &plan,
                                                      hal::Buffer &io) const;
  Status fillInputs(hal::Buffer &io);
  std::span<const std::byte> inputFor(const hal::TensorInfo &tensor,
                                      RandomTensor &random);

  std::vector<std::int32_t> cached; ///< the last input over a cache
  const ArtifactReader &artifact;
  const KernelBenchOptions &options;
  std::unique_ptr<SessionModel> model;
  hal::Session *session = nullptr; // the model's
  const artifact::Program *program = nullptr;
  bool isHost = false;
  std::uint64_t flushBytes = 0;
  KernelBenchResult result;
};

Status Bench::open() {
  hal::SessionOptions wanted;
  wanted.device = !options.device.empty() ? options.device
                  : isForGpus(artifact)   ? "cuda:0"
                                          : "cpu";
  wanted.deviceOptions.threads = options.threads;
  wanted.programs = {options.program};
  if (artifact.hasProgram("init") && options.program != "init")
    wanted.programs.push_back("init");
  auto opened = SessionModel::open(artifact, wanted);
  if (!opened.ok())
    return opened.status();
  model = opened.take();
  session = &model->get();
  const std::string_view name = session->device().name();
  if (name == "null")
    return Status::error("the null device runs no kernels; choose another "
                         "--device");
  program = artifact::findProgram(session->code(), options.program);
  result.emulated = name == "cuda-emu";
  isHost = name == "cpu";
  if (!result.emulated)
    flushBytes = options.flushBytes ? options.flushBytes
                 : isHost           ? kHostFlush
                                    : kGpuFlush;
  result.device = session->device().describe();
  result.target = session->target();
  result.program = options.program;
  return Status::success();
}

/// Weights as training begins with them, or at random where nothing says how.
Status Bench::fill() {
  if (session->hasProgram("init"))
    TESSERA_RETURN_IF_ERROR(model->initialize(1));
  RandomTensor random(model->facts().vocabSize);
  for (const hal::TensorInfo &tensor : session->state())
    if (tensor.source->quantized() || // which no @init gives
        (!session->hasProgram("init") &&
         tensor.role != artifact::Role::counter))
      TESSERA_RETURN_IF_ERROR(
          session->writeState(tensor.name, random.fill(tensor)));
  StatusOr<RunRecipe> recipe = parseRunRecipe(model->facts().recipe);
  if (!recipe.ok())
    return recipe.status();
  const auto hyper = recipe->hyper();
  if (const hal::TensorInfo *tensor = session->findState(kHyperTensor);
      tensor && tensor->bytes == sizeof(hyper))
    TESSERA_RETURN_IF_ERROR(
        session->writeState(kHyperTensor, std::as_bytes(std::span(hyper))));
  for (const hal::TensorInfo &tensor : session->inputs(options.program))
    TESSERA_RETURN_IF_ERROR(session->writeInput(options.program, tensor.name,
                                                inputFor(tensor, random)));
  return Status::success();
}

/// Slots and block tables of a KV cache must be consistent, so they are not
/// random.
std::span<const std::byte> Bench::inputFor(const hal::TensorInfo &tensor,
                                           RandomTensor &random) {
  cached = cachedInput(*session, options.program, tensor);
  return cached.empty() ? random.fill(tensor)
                        : std::as_bytes(std::span<const std::int32_t>(cached));
}

Status Bench::fillInputs(hal::Buffer &io) {
  RandomTensor random(model->facts().vocabSize);
  for (const hal::TensorInfo &tensor : session->inputs(options.program))
    TESSERA_RETURN_IF_ERROR(io.write(tensor.offset, inputFor(tensor, random)));
  return Status::success();
}

Status Bench::timeProgram() {
  std::vector<double> times;
  for (std::uint64_t i = 0; i <= kProgramRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    TESSERA_RETURN_IF_ERROR(session->run(options.program));
    const std::chrono::duration<double> taken =
        std::chrono::steady_clock::now() - start;
    if (i > 0)
      times.push_back(taken.count());
  }
  result.programSeconds = median(std::move(times));
  return Status::success();
}

StatusOr<std::unique_ptr<hal::CommandList>>
Bench::runMade(const KernelPlan &plan, hal::Buffer &io) const {
  hal::RecordOptions profiled;
  profiled.profile = true;
  profiled.traceEvents = plan.events;
  auto list = session->record(*plan.program, io, profiled);
  if (!list.ok())
    return list.status();
  TESSERA_RETURN_IF_ERROR((*list)->run());
  return list;
}

Status Bench::timeCopies() {
  const KernelPlan plan =
      planCopies(2 * flushBytes, kWarmUps + options.repeats);
  auto io = session->allocate(plan.program->io_bytes(), "what is copied");
  if (!io.ok())
    return io.status();
  auto list = runMade(plan, **io);
  if (!list.ok())
    return list.status();
  const double seconds = median(timesOf(*(*list)->profile(), 0, kWarmUps));
  if (seconds > 0)
    result.copyBytesPerSecond =
        static_cast<double>(plan.program->io_bytes()) / seconds;
  return Status::success();
}

Status Bench::findPeaks() {
  if (isHost) {
    StatusOr<RunRecipe> recipe = parseRunRecipe(model->facts().recipe);
    if (!recipe.ok())
      return recipe.status();
    const unsigned threads =
        options.threads ? options.threads
                        : std::max(std::thread::hardware_concurrency(), 1u);
    const PeakFlops peak = measureFastestPeak(
        recipe->values.compute == recipe::Precision::Bf16 ? PeakType::bf16
                                                          : PeakType::fp32,
        threads);
    result.peaks.fp32 = peak.perSecond; // kernels of a CPU are all of this kind
    result.peaksFrom = fmt::format("measured, {}", peak.instruction);
  } else if (const hardware::Chip *chip = hardware::findChip(result.device)) {
    result.peaks = chip->peaks;
    result.peaksFrom = fmt::format("data sheet of {}", chip->name);
  }
  return Status::success();
}

Status Bench::timeKernels() {
  const std::uint64_t warmUps = result.emulated ? 0 : kWarmUps;
  const KernelPlan plan = planKernels(
      session->code(), *program,
      {options.filter, warmUps + (result.emulated ? 1 : options.repeats),
       flushBytes});
  if (std::none_of(plan.problems.begin(), plan.problems.end(),
                   [](const Problem &problem) { return problem.repeats; }))
    return Status::error("no kernel of program '{}' has '{}' in its name; "
                         "tessera inspect --kernels lists them",
                         options.program, options.filter);
  auto io = session->allocate(plan.program->io_bytes(),
                              "io, and what empties the caches");
  if (!io.ok())
    return io.status();
  TESSERA_RETURN_IF_ERROR(fillInputs(**io));
  auto list = runMade(plan, **io);
  if (!list.ok())
    return list.status();
  const hal::Profile &profile = *(*list)->profile();
  for (const Problem &problem : plan.problems) {
    if (problem.repeats == 0)
      continue;
    const hal::ProfiledStep &step = profile.steps()[problem.step];
    KernelTime time{std::string(toView(problem.kernel->name())),
                    std::string(toView(problem.kernel->summary())),
                    problem.origin, problem.launches};
    time.flops = static_cast<double>(step.flops);
    time.bytes = static_cast<double>(step.bytes);
    time.seconds = median(
        timesOf(profile, problem.step, std::min(warmUps, problem.repeats - 1)));
    const double peak = artifact::peakOf(result.peaks, *problem.kernel);
    const double memory =
        result.copyBytesPerSecond ? time.bytes / result.copyBytesPerSecond : 0;
    const double compute = peak ? time.flops / peak : 0;
    time.boundByMemory = memory >= compute;
    time.roofSeconds = std::max(memory, compute);
    result.kernels.push_back(std::move(time));
  }
  std::sort(result.kernels.begin(), result.kernels.end(),
            [](const KernelTime &a, const KernelTime &b) {
              return a.all() > b.all();
            });
  return Status::success();
}

StatusOr<KernelBenchResult> Bench::run() {
  TESSERA_RETURN_IF_ERROR(open());
  TESSERA_RETURN_IF_ERROR(fill());
  TESSERA_RETURN_IF_ERROR(findPeaks());
  if (!result.emulated) {
    TESSERA_RETURN_IF_ERROR(timeCopies());
    TESSERA_RETURN_IF_ERROR(timeProgram());
  }
  TESSERA_RETURN_IF_ERROR(timeKernels());
  return std::move(result);
}

} // namespace

StatusOr<KernelBenchResult> benchKernels(const ArtifactReader &artifact,
                                         const KernelBenchOptions &options) {
  KernelBenchOptions chosen = options;
  if (chosen.program.empty())
    chosen.program =
        artifact.hasProgram("train_step") ? "train_step" : "decode_1";
  if (!artifact.hasProgram(chosen.program))
    return Status::error("{}: no program '{}': it has {}; choose with "
                         "--program",
                         artifact.path(), chosen.program,
                         artifact.programNames());
  return Bench(artifact, chosen).run();
}

} // namespace tessera::bench
