// One block of the emulated GPU: its threads as fibers, and what they share.
#pragma once
#include "runtime/hal/emulated/BlockMachine.h"

#include <boost/context/fiber.hpp>

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <random>

namespace tessera::emulated {

class Block final : public device::Machine {
public:
  Block(const LaunchOptions &options, KernelEntry entry, const void *arguments,
        std::span<const BufferRange> buffers, std::span<std::byte> memory,
        std::mt19937_64 &random, LaunchCounts &counts);
  ~Block() override;
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;

  /// Runs the kernel for the block of that number. Not again after an error.
  Status run(device::Index3 index);

  void barrier(unsigned id, unsigned count) override;
  void arrive(unsigned id, unsigned count) override;
  const std::byte *exchange(unsigned mask, const void *mine, std::size_t bytes,
                            const char *what) override;
  void checkGlobal(const void *address, std::size_t bytes,
                   std::size_t alignment, device::Access access) override;
  void checkShared(const void *address, std::size_t bytes,
                   std::size_t alignment) override;
  void copyAsync(void *target, const void *source, std::size_t bytes,
                 std::size_t valid) override;
  void commitCopies() override;
  void waitCopies(unsigned pending) override;
  void initBarrier(void *barrier, unsigned arrivals) override;
  void arriveBarrier(void *barrier, std::uint32_t bytes) override;
  void expectBytes(void *barrier, std::uint32_t bytes) override;
  void completeBytes(void *barrier, std::uint32_t bytes) override;
  void waitBarrier(void *barrier, unsigned parity) override;
  [[noreturn]] void fail(const char *message) override;

private:
  struct Copy {
    void *target;
    const void *source;
    std::size_t bytes, valid;
  };
  struct Thread {
    boost::context::fiber context; ///< while it does not run
    boost::context::fiber back;    ///< the scheduler, while it runs
    bool done = false;
    std::string waitsFor; ///< for the report of a deadlock
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
  };
  struct Warp {
    unsigned mask = 0, arrived = 0, generation = 0;
    std::size_t bytes = 0;
    const char *what = "";
    /// Two, since a lane may still read one while others fill the next.
    std::array<std::array<std::byte, std::size_t(256) * device::kWarp>, 2>
        slots;
    std::vector<unsigned> waiting;
  };
  struct NamedBarrier {
    unsigned arrived = 0, expected = 0;
    std::vector<unsigned> waiting;
  };
  struct MemoryBarrier {
    unsigned arrivals = 0, pending = 0, phase = 0;
    std::int64_t bytes = 0; ///< announced and not landed
    std::vector<unsigned> waiting;
  };

  void start(unsigned thread);
  void resume(unsigned thread);
  void suspend();
  void wait(std::vector<unsigned> &list, std::string what);
  void wake(std::vector<unsigned> &list);
  Status deadlock() const;
  NamedBarrier &join(unsigned id, unsigned count);
  bool completes(NamedBarrier &barrier);
  MemoryBarrier &find(void *barrier);
  void settle(MemoryBarrier &barrier);
  template <typename... Args>
  [[noreturn]] void error(fmt::format_string<Args...> format, Args &&...args) {
    fail(fmt::format(format, std::forward<Args>(args)...).c_str());
  }

  const LaunchOptions &options;
  KernelEntry entry;
  const void *arguments;
  std::span<const BufferRange> buffers;
  std::span<std::byte> memory;
  std::mt19937_64 &random;
  LaunchCounts &counts;

  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::array<NamedBarrier, 16> named;
  std::map<std::size_t, MemoryBarrier> barriers; ///< by offset in shared memory
  std::vector<unsigned> ready;
  unsigned current = 0, alive = 0;
  std::size_t lastBuffer = 0; ///< where the last global access was found
  std::optional<Status> failure;
};

} // namespace tessera::emulated
