// Messages of a rank that is busy to ranks that wait for it, so that it does
// not count as missing.
#pragma once
#include "runtime/support/Status.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera::comm {

class Heartbeats {
public:
  /// Calls `beat`, which sends one, every `interval` from another thread, until
  /// it fails. `interval` is less than half of the world's timeout, after which
  /// ranks that wait ask for the missing one.
  Heartbeats(std::chrono::milliseconds interval, std::function<Status()> beat)
      : thread([this, interval,
                beat = std::move(beat)](const std::stop_token &stop) {
          run(stop, interval, beat);
        }) {}

  /// No heartbeat is sent after it returns. The error of one that failed.
  Status stop() {
    thread.request_stop();
    if (thread.joinable())
      thread.join();
    return failed;
  }

private:
  void run(const std::stop_token &stop, std::chrono::milliseconds interval,
           const std::function<Status()> &beat) {
    std::unique_lock lock(mutex);
    while (failed.ok()) {
      wake.wait_for(lock, stop, interval, [] { return false; });
      if (stop.stop_requested())
        return;
      failed = beat();
    }
  }

  std::mutex mutex; ///< for waiting alone
  std::condition_variable_any wake;
  Status failed;
  std::jthread thread; // the last member: it uses the others
};

} // namespace tessera::comm
