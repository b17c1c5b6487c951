// One block of the emulated GPU: its threads as fibers, and their shared state.
// Block.cpp has scheduling and memory, Collectives.cpp barriers and exchanges,
// Barriers.cpp mbarriers, Copies.cpp asynchronous copies, Products.cpp wgmma,
// WarpProducts.cpp mma.sync.
#pragma once
#include "runtime/hal/emulated/BlockMachine.h"
#include "runtime/hal/emulated/Random.h"
#include "runtime/hal/emulated/TensorMap.h"

#include <boost/context/fiber.hpp>

#include <array>
#include <compare>
#include <deque>
#include <functional>
#include <map>
#include <optional>

namespace tessera::emulated {

class Block final : public device::Machine {
public:
  Block(const LaunchOptions &options, KernelEntry entry, const void *arguments,
        std::span<const BufferRange> buffers, std::span<std::byte> memory,
        Random &random, LaunchCounts &counts);
  ~Block() override;
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;

  /// Runs the kernel for the block of that number. Not again after an error.
  Status run(device::Index3 index);

  void barrier(unsigned id, unsigned count) override;
  void arrive(unsigned id, unsigned count) override;
  const std::byte *exchange(unsigned mask, const void *mine, std::size_t bytes,
                            const char *what) override;
  void loadMatrices(std::uint32_t (&at)[4], const void *row,
                    bool transposed) override;
  void multiply(const device::WarpProduct &product) override;
  void finishWarpProducts() override;
  void checkGlobal(const void *address, std::size_t bytes,
                   std::size_t alignment, device::Access access) override;
  void checkShared(const void *address, std::size_t bytes,
                   std::size_t alignment) override;
  void copyAsync(void *target, const void *source, std::size_t bytes,
                 std::size_t valid) override;
  void commitCopies() override;
  void waitCopies(unsigned pending) override;
  void initBarrier(void *barrier, unsigned arrivals) override;
  void fenceBarriers() override;
  void arriveBarrier(void *barrier, std::uint32_t bytes) override;
  void expectBytes(void *barrier, std::uint32_t bytes) override;
  void completeBytes(void *barrier, std::uint32_t bytes) override;
  void waitBarrier(void *barrier, unsigned parity) override;
  void writeShared(const void *address, std::size_t bytes,
                   std::size_t alignment) override;
  void fenceAsync() override;
  void loadBox(void *target, const device::TensorMap &map,
               const std::int32_t *at, unsigned rank, void *barrier) override;
  void loadBytes(void *target, const void *source, std::size_t bytes,
                 void *barrier) override;
  void storeBox(const device::TensorMap &map, const std::int32_t *at,
                unsigned rank, const void *source, bool adds) override;
  void storeBytes(void *target, const void *source, std::size_t bytes,
                  bool adds) override;
  void commitStores() override;
  void waitStores(unsigned pending, bool reads) override;
  void fenceProducts() override;
  void multiply(const device::WarpgroupProduct &product) override;
  void commitProducts() override;
  void waitProducts(unsigned pending) override;
  bool elect() override;
  void setRegisters(unsigned count, bool raises) override;
  [[noreturn]] void fail(const char *message) override;

private:
  struct Copy {
    void *target;
    const void *source;
    std::size_t bytes, valid;
  };
  /// A bulk copy: one box of a tensor, or bytes that lie one after another.
  struct BulkCopy {
    std::size_t offset = 0, bytes = 0; ///< in shared memory
    std::byte *global = nullptr;       ///< unless there are boxes
    std::optional<device::TensorBoxes> boxes;
    std::array<std::int32_t, 5> at{};
    bool adds = false;
    bool hasRead = false;         ///< a store, what is in `taken`
    std::vector<std::byte> taken; ///< as it lay in shared memory
  };
  /// What a thread waits for, in words only if there is a deadlock.
  struct Awaited {
    enum class Kind { barrier, lanes, parity, registers } kind;
    std::uint64_t first = 0, second = 0;
    const char *what = "";
    auto operator<=>(const Awaited &) const = default;
  };
  struct Thread {
    boost::context::fiber context; ///< while it does not run
    boost::context::fiber back;    ///< the scheduler, while it runs
    bool done = false;
    Awaited waitsFor{};
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
    std::vector<BulkCopy> openStores;
    std::deque<std::vector<BulkCopy>> storeGroups;
    std::uint32_t fences = 0;     ///< by fenceAsync
    unsigned knows = 0;           ///< of mbarriers made, see MemoryBarrier
    std::size_t warpProducts = 0; ///< issued to mma.sync
  };
  /// One mma.sync, computed when all lanes have arrived.
  struct IssuedProduct {
    unsigned arrived = 0;
    std::array<device::WarpProduct, device::kWarp> lanes;
  };
  /// One warp's quarter of a wgmma.
  struct Product {
    device::WarpgroupProduct::Same same;
    std::array<std::array<std::uint32_t, 4>, device::kWarp> registers;
    float *key = nullptr; ///< lane 0's accumulators
    std::vector<std::uint32_t> chunksA, chunksB;
    bool taken = false;
    std::vector<float> a, b; ///< operands, once they are taken
  };
  /// Accumulators that products are in flight for.
  struct Accumulators {
    std::array<float *, device::kWarp> registers{};
    std::vector<float> values; ///< of all lanes, one after another
    unsigned inFlight = 0;
  };
  struct Warp {
    unsigned mask = 0, arrived = 0, generation = 0;
    std::size_t bytes = 0;
    const char *what = "";
    /// Two, since a lane may still read one while others fill the next.
    std::array<std::array<std::byte, std::size_t(256) * device::kWarp>, 2>
        slots;
    std::vector<unsigned> waiting;
    unsigned knows = 0;

    std::vector<IssuedProduct> issued; ///< since all have been computed
    std::size_t computed = 0;          ///< before those
    std::vector<unsigned> multiplying; ///< lanes that wait for the last

    bool fenced = false;    ///< wgmma.fence since the last wait
    unsigned products = 0;  ///< issued
    unsigned registers = 0; ///< of a thread
    std::vector<std::shared_ptr<Product>> open;
    std::deque<std::vector<std::shared_ptr<Product>>> groups;
    std::map<float *, Accumulators> accumulators; ///< by lane 0's
  };
  /// The products of a warpgroup, in order: all its warps issue the same.
  struct Warpgroup {
    std::vector<device::WarpgroupProduct::Same> products;
  };
  struct NamedBarrier {
    unsigned arrived = 0, expected = 0;
    unsigned knows = 0;
    std::vector<unsigned> waiting;
  };
  struct MemoryBarrier {
    unsigned arrivals = 0, pending = 0, phase = 0;
    std::int64_t bytes = 0; ///< announced and not landed
    unsigned maker = 0;
    /// Its number among those made. Only threads may use it that have
    /// synchronized, by barriers, exchanges or mbarriers, with one that knows
    /// of it.
    unsigned number = 0;
    unsigned knows = 0;
    std::size_t offset = 0;
    unsigned notResumed =
        0;               ///< threads that it woke and that have not run since
    bool fenced = false; ///< the copy engine has seen it
    std::vector<unsigned> waiting;
    std::vector<BulkCopy> incoming;
  };

  void reset();
  void start(unsigned thread);
  void resume(unsigned thread);
  void suspend();
  void wait(std::vector<unsigned> &list, const Awaited &what);
  void wake(std::vector<unsigned> &list);
  static std::string describe(const Awaited &what);
  Status deadlock() const;
  Status findLeftovers() const;
  void checkThreadsEnd();
  void drawTurns();
  unsigned nextThread();
  bool progress(bool must);
  const std::byte *meet(unsigned mask, const void *mine, std::size_t bytes,
                        const char *what, const std::function<void()> &last);
  NamedBarrier &join(unsigned id, unsigned count);
  bool completes(NamedBarrier &barrier);
  MemoryBarrier &find(void *barrier);
  MemoryBarrier &findForCopy(void *barrier);
  /// What the running thread and `meeting` know, each learns from the other.
  template <typename Meeting> void share(Meeting &meeting) {
    unsigned &mine = threads[current].knows;
    mine = meeting.knows = std::max(mine, meeting.knows);
  }
  void announce(MemoryBarrier &barrier, std::int64_t bytes);
  void settle(MemoryBarrier &barrier);
  bool landOne();

  std::size_t offsetOf(const void *shared) const {
    return static_cast<std::size_t>(static_cast<const std::byte *>(shared) -
                                    this->shared);
  }
  void markWritten(std::size_t offset, std::size_t bytes);
  void checkFenced(std::size_t offset, std::size_t bytes, const char *what);
  BulkCopy describe(const device::TensorMap &map, const std::int32_t *at,
                    unsigned rank, const void *shared, device::Access access);
  void checkBytes(const void *shared, const void *global, std::size_t bytes,
                  device::Access access);
  void arrangeLoad(BulkCopy copy, void *barrier);
  void issueStore(BulkCopy copy);
  void land(const BulkCopy &copy);
  void read(BulkCopy &copy);
  void write(const BulkCopy &copy);

  void issue(const std::byte *lanes);
  void findOperands(Product &product);
  void take(Product &product);
  void compute(Warp &warp, const Product &product);
  void release(Warp &warp, float *key);
  void report(const std::string &message);
  template <typename... Args>
  [[noreturn]] void error(fmt::format_string<Args...> format, Args &&...args) {
    fail(fmt::format(format, std::forward<Args>(args)...).c_str());
  }

  const LaunchOptions &options;
  KernelEntry entry;
  const void *arguments;
  std::span<const BufferRange> buffers;
  std::span<std::byte> memory;
  Random &random;
  LaunchCounts &counts;

  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Warpgroup> warpgroups;
  std::array<NamedBarrier, 16> named;
  std::map<std::size_t, MemoryBarrier> barriers; ///< by offset in shared memory
  /// For every two bytes of shared memory, the thread that wrote them last (+
  /// 1) and after how many fences; copies and tensor cores write 0.
  struct Writer {
    std::uint32_t thread = 0, fences = 0;
  };
  std::vector<Writer> writers;
  bool anyWritten = false;
  std::vector<std::weak_ptr<Product>> untaken;
  unsigned elected = 0, freeRegisters = 0, barriersMade = 0;
  std::vector<unsigned> registerWaiters;
  std::vector<unsigned> ready;
  std::vector<unsigned> ranks; ///< of threads, for their turns; may be empty
  unsigned current = 0, alive = 0;
  std::size_t lastBuffer = 0; ///< where the last global access was found
  std::optional<Status> failure;
};

} // namespace tessera::emulated
