#include "runtime/infer/engine/EngineThread.h"

#include <utility>

namespace tessera {

void EngineThread::start(std::function<void()> loop) {
  thread = std::thread([this, loop = std::move(loop)] {
    loop();
    std::lock_guard lock(mutex);
    ended = true;
    quiet.notify_all();
  });
}

void EngineThread::drain(EngineClock::time_point deadline) {
  {
    std::unique_lock lock(mutex);
    draining = true;
    wake.notify_one();
    quiet.wait_until(lock, deadline, [&] { return ended; });
    cancelling = true;
    wake.notify_one();
    quiet.wait(lock, [&] { return ended; });
  }
  std::call_once(joined, [&] { thread.join(); });
}

std::optional<std::string> EngineThread::deathCause() const {
  std::lock_guard lock(mutex);
  return death;
}

} // namespace tessera
