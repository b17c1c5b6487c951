#include "runtime/hal/cuda/Trial.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/support/Floats.h"
#include "runtime/support/SplitMix64.h"

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

/// Numbers in [-1, 1) with 24 bits.
std::vector<std::byte> randomNumbers(std::uint64_t seed, ElementType type) {
  std::vector<std::byte> numbers(kPeriod * artifact::elementBytes(type));
  SplitMix64 random(seed);
  for (std::uint64_t i = 0; i < kPeriod; ++i) {
    const float value = static_cast<float>(random() >> 40) * 0x1p-23f - 1;
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
    } else if (type == ElementType::f32) {
      float value = 0;
      std::memcpy(&value, &from[i], sizeof(value));
      to.push_back(value);
    } else { // which is equal or is not
      for (const std::byte byte : from.subspan(i, size))
        to.push_back(static_cast<float>(byte));
    }
  }
}

} // namespace

StatusOr<Trial> Trial::create(const std::shared_ptr<Gpu> &gpu,
                              const LaunchCommand &launch,
                              const LaunchInstance &instance,
                              std::span<const LoadedKernel> kernels) {
  Trial trial(gpu, instance, kernels);
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
    if (kernel.access()->Get(i) != artifact::Access::read)
      trial.written.push_back(i);
    TESSERA_RETURN_IF_ERROR(trial.fill(i));
  }
  auto cold = gpu->allocate(2 * gpu->l2Bytes(), "emptying the L2 cache");
  if (!cold.ok())
    return cold.status();
  trial.cold = cold.take();
  TESSERA_RETURN_IF_ERROR(trial.makeEvents());
  return trial;
}

Status Trial::makeEvents() {
  const Driver &driver = gpu->driver();
  return gpu->enter([&] {
    for (Owned<Event> *event : {&start, &end}) {
      Event made = nullptr;
      TESSERA_RETURN_IF_ERROR(driver.eventCreate(&made, kEventDefault));
      *event = Owned<Event>(gpu, made, driver.eventDestroy);
    }
    return Status::success();
  });
}

/// By a program of one launch.
StatusOr<Candidate> Trial::generated(std::string name,
                                     const LaunchCommand &launch) {
  const std::uint32_t blocks = launch.blocks;
  Commands commands;
  commands.commands = {{Command::Kind::launch, 0, 0}};
  commands.launches = {{launch.kernel, launch.kernelIndex, 0, 1, blocks}};
  commands.instances = {{0, 0, blocks, instance.sizes, instance.source}};
  commands.pointers = arguments;
  commands.steps.push_back({artifact::toView(launch.kernel->name()), "trial"});
  auto list = CudaCommandList::record("trial", std::move(commands), {}, kernels,
                                      gpu, {}, Mode::stream, {});
  if (!list.ok())
    return list.status();
  launched.push_back(list.take());
  return Candidate{std::move(name),
                   [list = launched.back().get()](void *const *) {
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

StatusOr<Results> Trial::results(const Candidate &candidate) {
  for (const std::uint32_t argument : written)
    TESSERA_RETURN_IF_ERROR(fill(argument));
  TESSERA_RETURN_IF_ERROR(run(candidate));
  Results results;
  for (const std::uint32_t argument : written) {
    auto values = sample(argument);
    if (!values.ok())
      return values.status();
    results.push_back({types[argument], values.take()});
  }
  return results;
}

StatusOr<std::vector<float>> Trial::sample(std::uint32_t argument) {
  const ElementType type = types[argument];
  const std::uint64_t size = artifact::elementBytes(type);
  const std::uint64_t total = bytes[argument] / size * size;
  const std::uint64_t piece = std::min(total, kSampleBytes);
  std::vector<float> values;
  std::vector<std::byte> part(piece);
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const std::uint64_t offset =
        (total - piece) / size * i / (kSamples - 1) * size;
    TESSERA_RETURN_IF_ERROR(
        gpu->download(part, memory[argument].get() + offset));
    appendFloats(part, type, values);
    if (piece == total)
      break;
  }
  return values;
}

static bool agree(const Written &a, const Written &b, std::uint64_t k) {
  constexpr double kSingle = 0x1p-24, kMargin = 8;
  const double unit = a.type == ElementType::bf16 ? 0x1p-8 : kSingle;
  const double sums = kMargin * kSingle * (static_cast<double>(k) + 1);
  if (a.values.size() != b.values.size())
    return false;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    const double first = a.values[i], second = b.values[i];
    const double bound =
        sums + 2 * unit * std::max(std::abs(first), std::abs(second));
    if (!(std::abs(first - second) <= bound)) // NaN too
      return false;
  }
  return true;
}

bool agree(const Results &a, const Results &b, std::uint64_t k) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [k](const Written &x, const Written &y) { return agree(x, y, k); });
}

} // namespace tessera::hal::cuda
