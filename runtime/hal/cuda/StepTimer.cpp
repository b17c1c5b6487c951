#include "runtime/hal/cuda/StepTimer.h"

#include <chrono>

namespace tessera::hal::cuda {
namespace {

constexpr std::size_t kSteps = 256;

std::uint64_t now() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

std::uint64_t nanoseconds(float milliseconds) {
  return milliseconds > 0 ? static_cast<std::uint64_t>(
                                static_cast<double>(milliseconds) * 1e6)
                          : 0;
}

} // namespace

Status StepTimer::create(const std::shared_ptr<Gpu> &onGpu, Profile &into) {
  gpu = onGpu;
  profile = &into;
  const Driver &driver = gpu->driver();
  timed.resize(kSteps);
  for (Timed &one : timed)
    for (Owned<Event> *event : {&one.start, &one.end}) {
      Event made = nullptr;
      TESSERA_RETURN_IF_ERROR(driver.eventCreate(&made, kEventDefault));
      *event = Owned<Event>(gpu, made, driver.eventDestroy);
    }
  return Status::success();
}

Status StepTimer::start(std::uint32_t step) {
  if (used == timed.size())
    TESSERA_RETURN_IF_ERROR(collect());
  timed[used].step = step;
  TESSERA_RETURN_IF_ERROR(
      gpu->driver().eventRecord(timed[used].start.get(), gpu->stream()));
  // The stream is idle when the first event comes, so it happens about now.
  if (used == 0)
    firstHost = now();
  return Status::success();
}

Status StepTimer::stop() {
  return gpu->driver().eventRecord(timed[used++].end.get(), gpu->stream());
}

Status StepTimer::collect() {
  const Driver &driver = gpu->driver();
  TESSERA_RETURN_IF_ERROR(driver.streamSynchronize(gpu->stream()));
  for (std::size_t i = 0; i < used; ++i) {
    float sinceFirst = 0, duration = 0;
    TESSERA_RETURN_IF_ERROR(driver.eventElapsed(
        &sinceFirst, timed[0].start.get(), timed[i].start.get()));
    TESSERA_RETURN_IF_ERROR(driver.eventElapsed(&duration, timed[i].start.get(),
                                                timed[i].end.get()));
    const std::uint64_t start = firstHost + nanoseconds(sinceFirst);
    profile->add(timed[i].step, start, start + nanoseconds(duration));
  }
  used = 0;
  return Status::success();
}

} // namespace tessera::hal::cuda
