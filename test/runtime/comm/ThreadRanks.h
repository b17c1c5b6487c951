// Worlds of several ranks in one process, a thread each.
#pragma once
#include "runtime/comm/Channel.h"
#include "runtime/comm/ThreadTransport.h"

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tessera::comm {

/// What the ranks reported, whole lines of all together.
class Reports {
public:
  std::function<void(const std::string &)> sink() {
    return [this](const std::string &text) {
      std::lock_guard lock(mutex);
      all += text;
    };
  }
  std::string text() const {
    std::lock_guard lock(mutex);
    return all;
  }

private:
  mutable std::mutex mutex;
  std::string all;
};

using Transports = std::vector<std::unique_ptr<Transport>>;

/// Calls `body` for each rank at the same time, and returns when all did. It
/// has to leave the world if it wants that.
inline void runRanks(Transports transports, const WorldOptions &options,
                     const std::function<void(World &)> &body) {
  std::vector<std::thread> threads;
  for (auto &one : transports)
    threads.emplace_back([&options, &body, &one] {
      const auto world = World::over(std::move(one), options);
      body(*world);
    });
  for (std::thread &thread : threads)
    thread.join();
}

inline void runRanks(int size, const WorldOptions &options,
                     const std::function<void(World &)> &body,
                     const ThreadTransportOptions &transport = {}) {
  runRanks(ThreadTransport::create(size, transport), options, body);
}

} // namespace tessera::comm
