// The emulated GPU as a kernel sees it. Generated kernels, compiled for the
// host, get from it what CUDA provides in hardware: block and thread indices,
// barriers, exchange between the lanes of a warp, shared memory, asynchronous
// copies. The machine runs one block at a time; its threads are fibers, so
// between two calls of this interface a thread runs alone.
//
// Its rules are stricter than a GPU's: unwritten memory holds NaN, what others
// access must be ordered by a barrier, threads are scheduled at random. A
// kernel that works here waits for everything that it reads.
#pragma once
#include "runtime/device/TensorMap.h"
#include <cstddef>
#include <cstdint>
#include <source_location>

namespace tessera::device {

struct Index3 {
  unsigned x = 1, y = 1, z = 1;
};

enum class Access : std::uint8_t { read, write, readWrite };

inline constexpr unsigned kWarp = 32;

/// Where a kernel calls a barrier: all lanes of a warp must at the same place.
struct Site {
  unsigned line = 0, column = 0;
  const char *file = "";

  static Site of(const std::source_location &at) {
    return {at.line(), at.column(), at.file_name()};
  }
  bool operator==(const Site &) const = default;
};

/// What a kernel says to the compiler of its launches.
struct LaunchBounds {
  unsigned threads = 0;
  unsigned blocks = 0; ///< of a multiprocessor, at least; 0: not said
};

/// Some of a thread's registers, one after another.
struct Registers {
  const void *at;
  unsigned words;
};

/// Element types of the tensor cores; an instruction multiplies 32 bytes of
/// depth.
enum class MatrixElement : std::uint8_t { bf16, f16, tf32, e4m3, e5m2 };

/// A wgmma.mma_async of one lane: m64, n, and k = 32 bytes. `Same` must be
/// equal for all lanes of the warp and of the warpgroup.
struct WarpgroupProduct {
  struct Same {
    MatrixElement elementA, elementB;
    bool registersA;         ///< A from registers, not by its descriptor
    bool mnMajorA, mnMajorB; ///< in shared memory, else K-major
    bool accumulates;        ///< D += A × B, else D = A × B
    std::uint32_t n;
    std::uint64_t a, b; ///< descriptors; see MatrixDescriptor
    bool operator==(const Same &) const = default;
  } same;
  std::uint32_t at[4]; ///< this lane's part of A in registers
  float *d;            ///< this lane's n / 2 accumulators
  const void *a;       ///< the registers of A, as a fence has named them
  const void *kept[4]; ///< where they must stay what they are until the wait
};

/// An mma.sync of one lane: m16n8 and k = 32 bytes, of 16 bits or tf32.
struct WarpProduct {
  MatrixElement element;
  std::uint32_t a[4], b[2];
  float *c; ///< this lane's four sums
};

class Machine {
public:
  virtual ~Machine() = default;

  /// The running thread; kept current by the machine.
  Index3 threadIndex, blockIndex, blockSize, gridSize;
  /// Dynamic shared memory of the block.
  std::byte *shared = nullptr;
  std::size_t sharedBytes = 0;
  /// Approximate functions ask for their results; otherwise they are exact.
  bool approximates = false;

  /// The first call of a kernel's threads.
  virtual void enter(const LaunchBounds &bounds) = 0;

  /// Waits until `threads` threads (a multiple of a warp) have arrived at
  /// named barrier `id`, 0 to 15. Memory written before is visible after. All
  /// lanes of a warp come to it at the same `site`.
  virtual void
  barrier(unsigned id, unsigned threads,
          const Site &site = Site::of(std::source_location::current())) = 0;
  /// Arrives without waiting (bar.arrive).
  virtual void
  arrive(unsigned id, unsigned threads,
         const Site &site = Site::of(std::source_location::current())) = 0;

  /// All lanes of the warp in `mask` contribute the same number of `bytes`, at
  /// most 256; returns those of all lanes, `bytes` apart, lane 0 first, valid
  /// until this thread's next exchange. `what` names the collective: lanes that
  /// meet in different ones are an error.
  virtual const std::byte *exchange(unsigned mask, const void *mine,
                                    std::size_t bytes, const char *what) = 0;

  /// ldmatrix: four matrices of 8 × 8, whose rows are those 16 bytes of the
  /// lanes. Gives this lane two elements of each, of a row or, `transposed`, of
  /// a column.
  virtual void loadMatrices(std::uint32_t (&at)[4], const void *row,
                            bool transposed) = 0;
  /// mma.sync. Computed when the last lane of the warp has issued it, which no
  /// lane waits for before finishWarpProducts: sums must not be read or written
  /// in between.
  virtual void multiply(const WarpProduct &product) = 0;
  virtual void finishWarpProducts() = 0;

  /// Ends the launch with an error unless [address, address + bytes) is aligned
  /// and within one buffer of the launch that allows the access.
  virtual void checkGlobal(const void *address, std::size_t bytes,
                           std::size_t alignment, Access access) = 0;
  /// The same for a read of the block's shared memory. May run other threads.
  /// For all memory: an access must be ordered after those of others, and by a
  /// barrier, that it may conflict with.
  virtual void checkShared(const void *address, std::size_t bytes,
                           std::size_t alignment) = 0;

  /// cp.async: `valid` bytes from global to shared memory, zeros up to `bytes`
  /// (4, 8 or 16). They land between their issue, when the previous contents
  /// are lost, and this thread's wait for their group.
  virtual void copyAsync(void *target, const void *source, std::size_t bytes,
                         std::size_t valid) = 0;
  virtual void commitCopies() = 0;
  /// Until at most `pending` committed groups of this thread are in flight.
  virtual void waitCopies(unsigned pending) = 0;

  /// mbarrier objects in shared memory, 8 bytes, 8-byte aligned.
  virtual void initBarrier(void *barrier, unsigned arrivals) = 0;
  /// Shows this thread's new mbarriers to the copy engine.
  virtual void fenceBarriers() = 0;
  /// One arrival, which also expects `bytes` of copies.
  virtual void arriveBarrier(void *barrier, std::uint32_t bytes) = 0;
  /// Expects bytes, or completes them when copies land, without arriving.
  virtual void expectBytes(void *barrier, std::uint32_t bytes) = 0;
  virtual void completeBytes(void *barrier, std::uint32_t bytes) = 0;
  /// Until the phase of that parity has completed.
  virtual void waitBarrier(void *barrier, unsigned parity) = 0;

  /// A write to shared memory, checked; the copy engine and the tensor cores
  /// may read it after this thread's next fenceAsync.
  virtual void writeShared(const void *address, std::size_t bytes,
                           std::size_t alignment) = 0;
  virtual void fenceAsync() = 0;
  /// Shows the copy engine a map in global memory.
  virtual void acquireMap(const TensorMap &map) = 0;

  /// Bulk copies into shared memory: of one box of a tensor, whose first
  /// element is `at` (innermost dimension first; elements out of bounds are
  /// zeros), or of `bytes` bytes. The previous contents are lost when the copy
  /// is issued. Copies land when a thread waits for the barrier, on which they
  /// complete their bytes: never all at once, and no more than that wait needs.
  virtual void loadBox(void *target, const TensorMap &map,
                       const std::int32_t *at, unsigned rank,
                       void *barrier) = 0;
  virtual void loadBytes(void *target, const void *source, std::size_t bytes,
                         void *barrier) = 0;
  /// Bulk copies out of shared memory; `adds`: to what is there, f32. Elements
  /// out of bounds are left alone. Shared memory is read between issue and
  /// the wait.
  virtual void storeBox(const TensorMap &map, const std::int32_t *at,
                        unsigned rank, const void *source, bool adds) = 0;
  virtual void storeBytes(void *target, const void *source, std::size_t bytes,
                          bool adds) = 0;
  virtual void commitStores() = 0;
  /// Until at most `pending` groups of this thread's stores are in flight;
  /// `reads`: until they have read shared memory, and no further.
  virtual void waitStores(unsigned pending, bool reads) = 0;

  /// wgmma. Accumulators hold NaN from issue to the wait that ends their last
  /// product, which is when it is computed; operands in shared memory are read
  /// at a random moment between.
  /// `registers` are all that the next products use.
  virtual void fenceProducts(const Registers *registers, unsigned count) = 0;
  virtual void multiply(const WarpgroupProduct &product) = 0;
  virtual void commitProducts() = 0;
  virtual void waitProducts(unsigned pending) = 0;

  /// True for one lane of the warp, in a block always the same.
  virtual bool elect() = 0;
  /// setmaxnreg: `count` registers for each thread of this warp from here on,
  /// more (`raises`) or fewer than before.
  virtual void setRegisters(unsigned count, bool raises) = 0;

  /// What a function of `argument` whose result is `exact`, and which may err
  /// by `ulps` units in the last place, results in on a GPU.
  virtual float approximate(float exact, float argument, unsigned ulps) = 0;

  /// Ends the launch with `message`, which then names kernel, block and thread.
  [[noreturn]] virtual void fail(const char *message) = 0;
};

} // namespace tessera::device
