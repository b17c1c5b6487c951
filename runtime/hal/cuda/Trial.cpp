#include "runtime/hal/cuda/Trial.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/support/Floats.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tessera::hal::cuda {
namespace {

using artifact::ElementType;

/// A prime, so that rows of a matrix differ.
constexpr std::uint64_t kPeriod = 65521;
constexpr std::uint64_t kSamples = 16, kSampleBytes = 16 << 10;
constexpr std::size_t kRuns = 5;

/// Numbers in [-1, 1) with 24 bits, of splitmix64 (Steele, Lea, Flood 2014).
std::vector<std::byte> randomNumbers(std::uint64_t seed, ElementType type) {
  std::vector<std::byte> numbers(kPeriod * artifact::elementBytes(type));
  std::uint64_t state = seed;
  for (std::uint64_t i = 0; i < kPeriod; ++i) {
    std::uint64_t bits = state += 0x9e3779b97f4a7c15;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    const float value = static_cast<float>(bits >> 40) * 0x1p-23f - 1;
    if (type == ElementType::f32)
      std::memcpy(&numbers[i * 4], &value, 4);
    if (type == ElementType::bf16) {
      const std::uint16_t rounded = floatToBf16(value);
      std::memcpy(&numbers[i * 2], &rounded, 2);
    }
  }
  return numbers;
}

void appendFloats(std::span<const std::byte> from, ElementType type,
                  std::vector<float> &to) {
  const std::uint64_t size = artifact::elementBytes(type);
  for (std::uint64_t i = 0; i + size <= from.size(); i += size) {
    if (type == ElementType::bf16) {
      std::uint16_t value = 0;
      std::memcpy(&value, &from[i], sizeof(value));
      to.push_back(bf16ToFloat(value));
    } else {
      float value = 0;
      std::memcpy(&value, &from[i], sizeof(value));
      to.push_back(value);
    }
  }
}

} // namespace

StatusOr<Trial> Trial::create(const std::shared_ptr<Gpu> &gpu,
                              const LaunchCommand &launch,
                              const LaunchInstance &instance,
                              std::span<const LoadedKernel> kernels) {
  Trial trial(gpu);
  const artifact::Kernel &kernel = *launch.kernel;
  const auto &args = *instance.source->args();
  for (std::uint32_t i = 0; i < args.size(); ++i) {
    auto allocated =
        gpu->allocate(args.Get(i)->bytes(), "the trial of a kernel");
    if (!allocated.ok())
      return allocated.status();
    trial.memory.push_back(allocated.take());
    trial.bytes.push_back(args.Get(i)->bytes());
    trial.types.push_back(kernel.element_types()->Get(i));
    trial.arguments.push_back(
        reinterpret_cast<void *>( // NOLINT(performance-no-int-to-ptr)
            static_cast<std::uintptr_t>(trial.memory.back().get())));
    TESSERA_RETURN_IF_ERROR(trial.fill(i));
  }
  auto cold = gpu->allocate(2 * gpu->l2Bytes(), "emptying the L2 cache");
  if (!cold.ok())
    return cold.status();
  trial.cold = cold.take();
  const Driver &driver = gpu->driver();
  TESSERA_RETURN_IF_ERROR(gpu->enter([&] {
    for (Owned<Event> *event : {&trial.start, &trial.end}) {
      Event made = nullptr;
      TESSERA_RETURN_IF_ERROR(driver.eventCreate(&made, kEventDefault));
      *event = Owned<Event>(gpu, made, driver.eventDestroy);
    }
    return Status::success();
  }));
  TESSERA_RETURN_IF_ERROR(trial.record(launch, instance, kernels));
  return trial;
}

/// A program of one launch.
Status Trial::record(const LaunchCommand &launch,
                     const LaunchInstance &instance,
                     std::span<const LoadedKernel> kernels) {
  const std::uint32_t blocks = instance.endBlock - instance.firstBlock;
  Commands commands;
  commands.commands = {{Command::Kind::launch, 0, 0}};
  commands.launches = {{launch.kernel, launch.kernelIndex, 0, 1, blocks}};
  commands.instances = {{0, 0, blocks, instance.sizes, instance.source}};
  commands.pointers = arguments;
  commands.steps.push_back({artifact::toView(launch.kernel->name()), "trial"});
  auto list = CudaCommandList::record("trial", std::move(commands), kernels,
                                      gpu, {}, Mode::stream, {});
  if (!list.ok())
    return list.status();
  launched.reset(static_cast<CudaCommandList *>(list.take().release()));
  return Status::success();
}

Candidate Trial::generated() const {
  return {"generated", [list = launched.get()](void *const *) {
            return list->enqueueAll();
          }};
}

Status Trial::fill(std::uint32_t argument) {
  const ElementType type = types[argument];
  const std::vector<std::byte> numbers = randomNumbers(argument, type);
  const std::uint64_t total = bytes[argument];
  std::uint64_t done = std::min<std::uint64_t>(total, numbers.size());
  const Address to = memory[argument].get();
  TESSERA_RETURN_IF_ERROR(gpu->upload(
      to, std::span(numbers).first(static_cast<std::size_t>(done))));
  return settle([&] {
    while (done < total) {
      const std::uint64_t more = std::min(done, total - done);
      TESSERA_RETURN_IF_ERROR(
          gpu->driver().copyOnDevice(to + done, to, more, gpu->stream()));
      done += more;
    }
    return Status::success();
  });
}

Status Trial::settle(const std::function<Status()> &body) {
  return gpu->enter([&] {
    const Status status = body();
    const Status settled = gpu->driver().streamSynchronize(gpu->stream());
    return status.ok() ? settled : status;
  });
}

Status Trial::run(const Candidate &candidate) {
  return settle([&] { return candidate.enqueue(arguments.data()); });
}

StatusOr<double> Trial::time(const Candidate &candidate) {
  const Driver &driver = gpu->driver();
  std::array<float, kRuns> milliseconds{};
  for (float &one : milliseconds) {
    TESSERA_RETURN_IF_ERROR(settle([&] {
      TESSERA_RETURN_IF_ERROR(
          driver.fill(cold.get(), 0, 2 * gpu->l2Bytes(), gpu->stream()));
      TESSERA_RETURN_IF_ERROR(driver.eventRecord(start.get(), gpu->stream()));
      TESSERA_RETURN_IF_ERROR(candidate.enqueue(arguments.data()));
      return driver.eventRecord(end.get(), gpu->stream());
    }));
    TESSERA_RETURN_IF_ERROR(gpu->enter(
        [&] { return driver.eventElapsed(&one, start.get(), end.get()); }));
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  return static_cast<double>(milliseconds[kRuns / 2]) * 1000;
}

StatusOr<std::vector<float>> Trial::results(const Candidate &candidate,
                                            std::uint32_t result) {
  TESSERA_RETURN_IF_ERROR(fill(result));
  TESSERA_RETURN_IF_ERROR(run(candidate));
  const ElementType type = types[result];
  const std::uint64_t size = artifact::elementBytes(type);
  const std::uint64_t total = bytes[result] / size * size;
  const std::uint64_t piece = std::min(total, kSampleBytes);
  std::vector<float> values;
  std::vector<std::byte> part(piece);
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const std::uint64_t offset =
        (total - piece) / size * i / (kSamples - 1) * size;
    TESSERA_RETURN_IF_ERROR(gpu->download(part, memory[result].get() + offset));
    appendFloats(part, type, values);
    if (piece == total)
      break;
  }
  return values;
}

bool agree(std::span<const float> a, std::span<const float> b, std::uint64_t k,
           ElementType type) {
  constexpr double kSingle = 0x1p-24, kMargin = 8;
  const double unit = type == ElementType::bf16 ? 0x1p-8 : kSingle;
  const double sums = kMargin * kSingle * (static_cast<double>(k) + 1);
  if (a.size() != b.size())
    return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double first = a[i], second = b[i];
    const double bound =
        sums + 2 * unit * std::max(std::abs(first), std::abs(second));
    if (!(std::abs(first - second) <= bound)) // NaN too
      return false;
  }
  return true;
}

} // namespace tessera::hal::cuda
