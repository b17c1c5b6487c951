// Runs kernels of the emulated GPU: a fiber a thread, blocks one after
// another in an order drawn from a seed.
#pragma once
#include "runtime/device/emulated/Machine.h"
#include "runtime/hal/emulated/Numerics.h"
#include "runtime/support/Status.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::emulated {

/// Device memory that a kernel was given.
struct BufferRange {
  const std::byte *begin = nullptr;
  std::uint64_t bytes = 0;
  device::Access access = device::Access::readWrite;
};

/// A kernel compiled for the host. `arguments` is what the launch passes on.
using KernelEntry = void (*)(device::Machine &machine, const void *arguments);

/// What a block of a GPU has.
struct Chip {
  std::size_t sharedBytes = 227 << 10; ///< at most, of a block
  unsigned registers = 65536;
  bool isHopper = true; ///< wgmma, bulk copies, setmaxnreg
  CoreSums cores = {};
};

/// Of an architecture that code is compiled for, as "sm_90a".
StatusOr<Chip> chipOf(std::string_view architecture);

struct LaunchOptions {
  std::string kernel;            ///< for errors
  device::Index3 grid;           ///< blocks
  unsigned threads = 32;         ///< of a block: a multiple of 32, at most 1024
  std::size_t sharedBytes = 0;   ///< at most the chip's
  std::uint64_t seed = 0;        ///< of the order of blocks and threads
  Chip chip = {};                ///< sm_90a
  unsigned registers = 0;        ///< of a thread, as compiled; 0: unknown
  std::size_t argumentBytes = 0; ///< of the kernel's parameters
  Numerics numerics = {};
};

/// What the launches did.
struct LaunchCounts {
  std::uint64_t blocks = 0, switches = 0, barriers = 0, asyncBytes = 0;
  std::uint64_t bulkBytes = 0; ///< by bulk copies, either way
  std::uint64_t products = 0;  ///< wgmma, of one warp
};

/// Keeps its fibers' stacks and shared memory between launches. Not for use by
/// two threads at once.
class BlockMachine {
public:
  BlockMachine();
  ~BlockMachine();
  /// Runs every block to its end. An error names kernel, block, thread and what
  /// was wrong: an access outside of `buffers`, a collective that not all lanes
  /// reach, a barrier that never completes.
  Status launch(const LaunchOptions &options, KernelEntry entry,
                const void *arguments, std::span<const BufferRange> buffers);
  const LaunchCounts &counts() const;

private:
  class Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace tessera::emulated
