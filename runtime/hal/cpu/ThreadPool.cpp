#include "runtime/hal/cpu/ThreadPool.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>

namespace tessera::hal {
namespace {

// Longer than the gap between two launches, too short for a spinning processor
// to be noticed.
constexpr std::chrono::microseconds kSpin{200};

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

void futexWait(std::atomic<std::uint32_t> &word, std::uint32_t expected) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr,
            0);
}

void futexWake(std::atomic<std::uint32_t> &word, int count) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void pauseProcessor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// Whether `done` came true within the spinning time.
template <typename Condition> bool spinUntil(Condition &&done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done())
        return true;
      pauseProcessor();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

} // namespace

StatusOr<std::unique_ptr<ThreadPool>>
ThreadPool::create(unsigned threads, SharedProcessors shared) {
  if (threads == 0 || threads > 4096)
    return Status::error("cannot run on {} threads: use 1 to 4096", threads);
  std::unique_ptr<ThreadPool> pool(new ThreadPool(std::move(shared)));
  pool->launchThreads.store(threads);
  pool->shares = std::make_unique<Share[]>(threads);
  pool->workers.reserve(threads - 1);
  // Signals belong to the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    for (unsigned i = 1; i < threads; ++i)
      pool->workers.emplace_back(&ThreadPool::workerMain, pool.get(), i);
  } catch (const std::system_error &error) {
    status = Status::error("cannot start thread {} of {}: {}",
                           pool->workers.size() + 2, threads, error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!status.ok())
    return status;
  return pool;
}

ThreadPool::~ThreadPool() {
  stopping.store(true);
  launchThreads.store(threads());
  futexWake(launchThreads, INT_MAX);
  latest.fetch_add(1);
  futexWake(latest, INT_MAX);
  for (std::thread &worker : workers)
    worker.join();
}

void ThreadPool::run(std::uint32_t blocks, Call call, void *context) {
  if (blocks == 0)
    return;
  if (!shared.share)
    return launch(blocks, call, context, threads());
  const bool busy = shared.share->begin(shared.pool);
  launch(blocks, call, context,
         busy ? std::min(shared.part, threads()) : threads());
  shared.share->end(shared.pool);
}

void ThreadPool::launch(std::uint32_t blocks, Call call, void *context,
                        unsigned count) {
  if (blocks == 1 || count == 1)
    return call(context, 0, blocks, 0);
  if (launchThreads.load(std::memory_order_relaxed) != count) {
    launchThreads.store(count);
    futexWake(launchThreads, INT_MAX);
  }
  launchCall.store(call, std::memory_order_relaxed);
  launchContext.store(context, std::memory_order_relaxed);
  launchBlocks.store(blocks, std::memory_order_relaxed);
  finishedBlocks.store(0, std::memory_order_relaxed);
  const std::uint32_t generation = latest.load(std::memory_order_relaxed) + 1;
  for (unsigned i = 0; i < count; ++i) {
    const std::uint32_t own = shareBegin(blocks, i + 1) - shareBegin(blocks, i);
    shares[i].ticket.store(static_cast<std::uint64_t>(generation) << 32 | own,
                           std::memory_order_release);
  }
  // A thread going to sleep counts itself first and looks at `latest` after; we
  // do the opposite, so one of the two sees the other.
  latest.store(generation);
  // With fewer threads than there are, those that are left out wake too: which
  // ones a futex wakes is not known. They sleep elsewhere then.
  if (sleepers.load() != 0)
    futexWake(latest, count < threads()
                          ? INT_MAX
                          : static_cast<int>(std::min<std::size_t>(
                                blocks - 1, workers.size())));
  work(generation, 0);
  awaitFinish(blocks);
}

std::uint32_t ThreadPool::shareBegin(std::uint32_t blocks,
                                     unsigned owner) const {
  return static_cast<std::uint32_t>(
      std::uint64_t(blocks) * owner /
      launchThreads.load(std::memory_order_relaxed));
}

void ThreadPool::work(std::uint32_t generation, unsigned thread) {
  const std::uint32_t count = launchThreads.load(std::memory_order_relaxed);
  for (unsigned i = 0; i < count; ++i)
    workShare(generation, (thread + i) % count, thread);
}

void ThreadPool::workShare(std::uint32_t generation, unsigned owner,
                           unsigned thread) {
  std::atomic<std::uint64_t> &ticket = shares[owner].ticket;
  std::uint64_t seen = ticket.load(std::memory_order_acquire);
  for (;;) {
    const auto left = static_cast<std::uint32_t>(seen);
    if (seen >> 32 != generation || left == 0)
      return;
    // Few claims at first, fine balance at the end.
    const std::uint32_t chunk = std::max(1u, left / (owner == thread ? 4 : 2));
    if (!ticket.compare_exchange_weak(seen, seen - chunk,
                                      std::memory_order_acq_rel))
      continue;
    // From here to the addition below the launch cannot end.
    const std::uint32_t blocks = launchBlocks.load(std::memory_order_relaxed);
    const std::uint32_t begin = shareBegin(blocks, owner + 1) - left;
    launchCall.load(std::memory_order_relaxed)(
        launchContext.load(std::memory_order_relaxed), begin, begin + chunk,
        thread);
    if (finishedBlocks.fetch_add(chunk) + chunk == blocks &&
        launcherSleeps.load() != 0)
      futexWake(finishedBlocks, 1);
    seen = ticket.load(std::memory_order_acquire);
  }
}

void ThreadPool::awaitFinish(std::uint32_t blocks) {
  const auto finished = [&] { return finishedBlocks.load() == blocks; };
  if (spinUntil(finished))
    return;
  launcherSleeps.store(1);
  for (;;) {
    const std::uint32_t count = finishedBlocks.load();
    if (count == blocks)
      break;
    futexWait(finishedBlocks, count);
  }
  launcherSleeps.store(0);
}

std::uint32_t ThreadPool::awaitLaunch(std::uint32_t seen) {
  if (!spinUntil(
          [&] { return latest.load(std::memory_order_acquire) != seen; })) {
    sleepers.fetch_add(1);
    while (latest.load() == seen)
      futexWait(latest, seen);
    sleepers.fetch_sub(1);
  }
  return latest.load(std::memory_order_acquire);
}

void ThreadPool::awaitTurn(unsigned thread) {
  for (;;) {
    const std::uint32_t count = launchThreads.load();
    if (thread < count || stopping.load())
      return;
    futexWait(launchThreads, count);
  }
}

void ThreadPool::workerMain(unsigned thread) {
  std::uint32_t seen = 0;
  while (true) {
    awaitTurn(thread);
    seen = awaitLaunch(seen);
    if (stopping.load())
      return;
    if (thread < launchThreads.load())
      work(seen, thread);
  }
}

unsigned availableProcessors() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
  return std::max(1u, std::thread::hardware_concurrency());
}

} // namespace tessera::hal
