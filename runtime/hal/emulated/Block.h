// One block of the emulated GPU: its threads as fibers, and their shared state.
// Block.cpp has scheduling and memory, Races.cpp which accesses are ordered,
// Collectives.cpp barriers and exchanges, Barriers.cpp mbarriers, Copies.cpp
// asynchronous copies, Products.cpp wgmma, WarpProducts.cpp mma.sync.
#pragma once
#include "runtime/hal/emulated/BlockMachine.h"
#include "runtime/hal/emulated/Random.h"
#include "runtime/hal/emulated/Shadow.h"
#include "runtime/hal/emulated/Stacks.h"
#include "runtime/hal/emulated/TensorMap.h"

#include <boost/context/fiber.hpp>

#include <boost/container/static_vector.hpp>

#include <array>
#include <compare>
#include <deque>
#include <functional>
#include <map>
#include <optional>

namespace tessera::emulated {

/// Bytes of shared memory, or of a region of global memory.
struct ShadowPlace {
  Shadow *shadow = nullptr; ///< null: the launch does not write it
  std::size_t offset = 0;
  bool isGlobal = false;
};

/// The global memory that a launch may write.
class WrittenMemory {
public:
  WrittenMemory(std::span<const BufferRange> buffers, Readers &readers);
  ShadowPlace find(std::size_t buffer, const std::byte *address) const;

private:
  static constexpr std::size_t kNone = ~std::size_t(0), kAlignment = 16;
  struct Region {
    const std::byte *begin;
    std::unique_ptr<Shadow> shadow;
  };
  std::vector<Region> regions;
  std::vector<std::size_t> regionOf; ///< by buffer
};

/// Who accesses memory, and what it must know to be allowed to.
struct Accessor {
  Epoch epoch; ///< its own
  boost::container::static_vector<const Clock *, 2 * device::kWarp> clocks;
  bool isAsync = false;  ///< through the async proxy
  const char *what = ""; ///< "a bulk store ", or nothing for a thread
};

class Block final : public device::Machine {
public:
  Block(const LaunchOptions &options, KernelEntry entry, const void *arguments,
        std::span<const BufferRange> buffers, std::span<std::byte> memory,
        Stacks &stacks, Random &random, LaunchCounts &counts);
  ~Block() override;
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;

  /// Runs the kernel for the block of that number. Not again after an error.
  Status run(device::Index3 index);

  void enter(const device::LaunchBounds &bounds) override;
  void barrier(unsigned id, unsigned count, const device::Site &site) override;
  void arrive(unsigned id, unsigned count, const device::Site &site) override;
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
  void acquireMap(const device::TensorMap &map) override;
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
  void fenceProducts(const device::Registers *registers,
                     unsigned count) override;
  void multiply(const device::WarpgroupProduct &product) override;
  void commitProducts() override;
  void waitProducts(unsigned pending) override;
  bool elect() override;
  void setRegisters(unsigned count, bool raises) override;
  float approximate(float exact, float argument, unsigned ulps) override;
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
  /// Registers that wgmma.fence has named, and what they held.
  struct Fenced {
    device::Registers registers;
    std::uint64_t hash;
  };
  struct Thread {
    boost::context::fiber context; ///< while it does not run
    boost::context::fiber back;    ///< the scheduler, while it runs
    bool done = false;
    Awaited waitsFor{};
    Clock clock;
    std::vector<std::uint32_t> fences; ///< when fenceAsync was called
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
    std::vector<BulkCopy> openStores;
    std::deque<std::vector<BulkCopy>> storeGroups;
    /// Of its bulk stores; their moments are groups. None: 0.
    Agent storesRead = 0, storesWritten = 0;
    std::uint32_t storesCommitted = 0; ///< groups
    std::vector<Fenced> fenced;
    std::size_t aligned = 0;      ///< calls of barriers
    std::size_t warpProducts = 0; ///< issued to mma.sync
  };
  /// A barrier's call by a warp, which counts when all lanes have made it.
  struct AlignedCall {
    device::Site site;
    unsigned id, count;
    std::vector<Clock> clocks; ///< of the lanes that have come
    std::vector<unsigned> waiting;
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
    /// Where those are, which must not change before the wait.
    std::array<std::array<const void *, 4>, device::kWarp> kept{};
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

    std::deque<AlignedCall> calls; ///< that some lanes have not made
    std::size_t callsDone = 0;     ///< before those

    std::vector<IssuedProduct> issued; ///< since all have been computed
    std::size_t computed = 0;          ///< before those
    std::vector<unsigned> multiplying; ///< lanes that wait for the last

    bool fenced = false;   ///< wgmma.fence since the last wait
    unsigned products = 0; ///< issued
    std::uint32_t groupsCommitted = 0;
    Learning learning;      ///< of finished groups
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
    unsigned arrived = 0, expected = 0; ///< threads of whole warps
    unsigned come = 0;                  ///< the other lanes, too
    Meeting meeting;
    std::vector<unsigned> waiting;
  };
  struct MemoryBarrier {
    unsigned arrivals = 0, pending = 0, phase = 0;
    std::int64_t bytes = 0; ///< announced and not landed
    /// When its maker made it: only threads may use it that know of that.
    Epoch made;
    Agent agent = 0; ///< its moments are phases
    Meeting meeting; ///< of arrivals
    Known ended;     ///< what they had told when the last phase ended
    Learning learning;
    std::size_t offset = 0;
    unsigned notResumed =
        0;               ///< threads that it woke and that have not run since
    bool fenced = false; ///< the copy engine has seen it
    std::vector<unsigned> waiting;
    std::vector<BulkCopy> incoming;
  };

  void reset();
  void closeMoments();
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
  AlignedCall &come(unsigned id, unsigned count, const device::Site &site);
  bool completes(AlignedCall &call);
  void checkSameCalls(const char *what);
  unsigned entryRegisters();
  void requireHopper(const char *what);
  MemoryBarrier &find(void *barrier);
  MemoryBarrier &findForCopy(void *barrier);
  std::uint32_t momentOf(const MemoryBarrier &barrier) const {
    return firstMoment + barrier.phase;
  }
  void announce(MemoryBarrier &barrier, std::int64_t bytes);
  void settle(MemoryBarrier &barrier);
  bool landOne();

  std::size_t offsetOf(const void *shared) const {
    return static_cast<std::size_t>(static_cast<const std::byte *>(shared) -
                                    this->shared);
  }
  ShadowPlace sharedPlace(std::size_t offset) {
    return {&sharedShadow, offset, false};
  }
  void checkBounds(const void *shared, std::size_t bytes,
                   std::size_t alignment);
  ShadowPlace requireGlobal(const void *address, std::size_t bytes,
                            std::size_t alignment, device::Access access);
  void mayYield();

  struct AgentName {
    bool isBarrier; ///< a bulk store otherwise
    std::size_t number;
  };
  Accessor thisThread() const;
  Accessor onBehalf(Epoch epoch, const char *what) const;
  Accessor onBehalfOfWarp(Epoch epoch, const char *what) const;
  Agent makeAgent(AgentName name);
  std::string describeAgent(Agent agent) const;
  bool isFenced(Epoch write, const Accessor &accessor) const;
  bool isOfOtherBlock(Epoch set) const;
  std::optional<Epoch> findUnknown(Epoch set, const Accessor &accessor) const;
  Epoch joined(Epoch set, const Accessor &accessor, bool isGlobal);
  void checkWriter(const Cell &cell, const ShadowPlace &place,
                   const Accessor &accessor, const char *verb);
  void checkReaders(const Cell &cell, const ShadowPlace &place,
                    const Accessor &accessor);
  bool isPlain(Epoch epoch, const Clock &thread, bool isGlobal) const;
  bool readsPlainly(Cell &cell, const Clock &thread, bool isGlobal);
  bool writesPlainly(Cell &cell, const Clock &thread, bool isGlobal) const;
  void readByThread(ShadowPlace place, std::size_t bytes);
  void writeByThread(ShadowPlace place, std::size_t bytes);
  void noteRead(ShadowPlace place, std::size_t bytes, const Accessor &accessor);
  void noteWrite(ShadowPlace place, std::size_t bytes, const Accessor &accessor,
                 Written how);
  void noteLanded(std::size_t offset, std::size_t bytes, Epoch epoch,
                  Written how);
  void noteRows(const BulkCopy &copy, const Accessor &accessor,
                std::optional<Written> how);
  void land(const Copy &copy);
  Epoch storeEpoch(Agent Thread::*agent);
  bool isAcquired(const device::TensorMap &map) const;
  void checkMap(const device::TensorMap &map);
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
  void checkRegisters(const Product &product, const Accumulators &fresh,
                      bool isInFlight, const std::byte *lanes);
  void checkKept(const Product &product);
  void finishGroups(Warp &warp, unsigned pending);
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
  Stacks &stacks;
  Random &random;
  LaunchCounts &counts;

  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Warpgroup> warpgroups;
  std::array<NamedBarrier, 16> named;
  std::map<std::size_t, MemoryBarrier> barriers; ///< by offset in shared memory
  Readers readers;
  Shadow sharedShadow;
  WrittenMemory written;
  std::vector<AgentName> agents; ///< of those after threads and tensor cores
  /// Before it were the launch's earlier blocks.
  std::uint32_t firstMoment = 1;
  const Known nothing = std::make_shared<const Times>();
  /// Maps in memory, by those that acquired them.
  std::map<const device::TensorMap *, std::vector<Epoch>> acquired;
  device::LaunchBounds bounds{};
  std::vector<std::weak_ptr<Product>> untaken;
  unsigned elected = 0, freeRegisters = 0;
  std::vector<unsigned> registerWaiters;
  std::vector<unsigned> ready;
  std::vector<unsigned> ranks; ///< of threads, for their turns; may be empty
  unsigned current = 0, alive = 0;
  bool isOver = false;        ///< fibers that are resumed end
  std::size_t lastBuffer = 0; ///< where the last global access was found
  std::optional<Status> failure;
};

} // namespace tessera::emulated
