// Threads that share the blocks of one launch after another, with microseconds
// between launches: no allocation, no lock and no queue on that path.
#pragma once
#include "runtime/hal/cpu/ProcessorShare.h"
#include "runtime/support/Status.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace tessera::hal {

/// Idle threads spin for a moment, since the next launch is usually near, and
/// then sleep on a futex. Launches come from one thread at a time.
class ThreadPool {
public:
  /// `threads` ≥ 1, the caller of parallelFor among them.
  static StatusOr<std::unique_ptr<ThreadPool>>
  create(unsigned threads, SharedProcessors shared = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  unsigned threads() const { return static_cast<unsigned>(workers.size()) + 1; }

  /// Calls body(begin, end, thread) until [0, blocks) is covered, each block
  /// once, and returns when all calls have; thread < threads(). How the range
  /// is split depends on timing.
  template <typename Body> void parallelFor(std::uint32_t blocks, Body &&body) {
    using Callee = std::remove_reference_t<Body>;
    run(
        blocks,
        [](void *context, std::uint32_t begin, std::uint32_t end,
           unsigned thread) {
          (*static_cast<Callee *>(context))(begin, end, thread);
        },
        &body);
  }

private:
  using Call = void (*)(void *context, std::uint32_t begin, std::uint32_t end,
                        unsigned thread);
  explicit ThreadPool(SharedProcessors shared) : shared(std::move(shared)) {}
  void run(std::uint32_t blocks, Call call, void *context);
  void launch(std::uint32_t blocks, Call call, void *context, unsigned count);
  void workerMain(unsigned thread);
  /// Sleeps while the launches are for fewer threads.
  void awaitTurn(unsigned thread);
  /// Takes and runs chunks of launch `generation` while there are any: first
  /// those assigned to this thread, then those of others.
  void work(std::uint32_t generation, unsigned thread);
  void workShare(std::uint32_t generation, unsigned owner, unsigned thread);
  /// The first block assigned to a thread; `blocks` for the end of the last
  /// thread's.
  std::uint32_t shareBegin(std::uint32_t blocks, unsigned owner) const;
  /// Returns the generation that follows `seen`.
  std::uint32_t awaitLaunch(std::uint32_t seen);
  void awaitFinish(std::uint32_t blocks);

  // The launch: written while no block is claimed, read by threads that claimed
  // one.
  std::atomic<Call> launchCall{nullptr};
  std::atomic<void *> launchContext{nullptr};
  std::atomic<std::uint32_t> launchBlocks{0};
  std::atomic<std::uint32_t> launchThreads{0}; // futex; the first of all
  // For each thread, the generation (high half) and the number of unclaimed
  // blocks (low half) of its range of the launch. Blocks are claimed in
  // ascending order: consecutive blocks mostly read consecutive memory, which
  // the hardware prefetches. A late thread's claim fails because its generation
  // has passed or nothing is left, so a launch never waits for threads that did
  // not start.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> ticket{0};
  };
  std::unique_ptr<Share[]> shares;
  alignas(64) std::atomic<std::uint32_t> finishedBlocks{0}; // futex
  std::atomic<std::uint32_t> launcherSleeps{0};
  alignas(64) std::atomic<std::uint32_t> latest{0}; // generation; futex
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<bool> stopping{false};
  const SharedProcessors shared;
  std::vector<std::thread> workers;
};

/// Processors that this process may run on (its affinity mask).
unsigned availableProcessors();

} // namespace tessera::hal
