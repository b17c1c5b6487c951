// Processors that several thread pools of a process share, such as those of an
// engine that samples and of a learner.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace tessera::hal {

/// Says which pools compute. A pool takes only its part of the processors while
/// another one launches kernels, and all of them otherwise: threads of two
/// pools on one processor would wait for each other.
class ProcessorShare {
public:
  explicit ProcessorShare(unsigned pools)
      : count(pools), pools(std::make_unique<Pool[]>(pools)) {}

  /// A launch of `pool` begins. Returns whether another pool computes.
  bool begin(unsigned pool) {
    pools[pool].launches.store(true);
    const std::int64_t now = clock();
    bool busy = false;
    for (unsigned i = 0; i < count; ++i)
      busy |= i != pool &&
              (pools[i].launches.load() || now - pools[i].ended.load() < kGap);
    return busy;
  }
  void end(unsigned pool) {
    pools[pool].ended.store(clock());
    pools[pool].launches.store(false);
  }

private:
  /// Longer than what a program's host does between two launches.
  static constexpr std::int64_t kGap = 2'000'000; // ns

  static std::int64_t clock() {
    return std::chrono::steady_clock::now().time_since_epoch() /
           std::chrono::nanoseconds(1);
  }

  struct alignas(64) Pool {
    std::atomic<bool> launches{false};
    std::atomic<std::int64_t> ended{INT64_MIN / 2};
  };
  const unsigned count;
  std::unique_ptr<Pool[]> pools;
};

/// A pool's place in a share.
struct SharedProcessors {
  std::shared_ptr<ProcessorShare> share; ///< null: not shared
  unsigned pool = 0;                     ///< its number
  unsigned part = 0; ///< threads while another pool computes, at least 1
};

} // namespace tessera::hal
