#include "runtime/hal/emulated/BlockMachine.h"
#include "runtime/hal/emulated/Block.h"

#include <algorithm>
#include <numeric>

namespace tessera::emulated {

class BlockMachine::Impl {
public:
  Status launch(const LaunchOptions &options, KernelEntry entry,
                const void *arguments, std::span<const BufferRange> buffers);
  LaunchCounts counts;

private:
  std::vector<std::byte> shared;
  Stacks stacks;
};

BlockMachine::BlockMachine() : impl(std::make_unique<Impl>()) {}
BlockMachine::~BlockMachine() = default;
const LaunchCounts &BlockMachine::counts() const { return impl->counts; }

Status BlockMachine::launch(const LaunchOptions &options, KernelEntry entry,
                            const void *arguments,
                            std::span<const BufferRange> buffers) {
  return impl->launch(options, entry, arguments, buffers);
}

// CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability": shared memory of a block, opted in; registers of a block. Sums
// of tensor cores are in no document of NVIDIA's: README.md has the sources.
StatusOr<Chip> chipOf(std::string_view architecture) {
  constexpr std::size_t kKiB = 1024;
  constexpr CoreSums kAmpere{24, 16}, kHopper{25, 32};
  if (architecture == "sm_80" || architecture == "sm_87")
    return Chip{163 * kKiB, 65536, false, kAmpere};
  if (architecture == "sm_86" || architecture == "sm_89")
    return Chip{99 * kKiB, 65536, false, kAmpere};
  if (architecture == "sm_90" || architecture == "sm_90a")
    return Chip{227 * kKiB, 65536, architecture == "sm_90a", kHopper};
  return Status::error("the emulated GPU does not know the limits of {}",
                       architecture);
}

static Status checkOptions(const LaunchOptions &options) {
  if (options.threads == 0 || options.threads > 1024 ||
      options.threads % device::kWarp)
    return Status::error("kernel '{}': a block has 32 to 1024 threads, a "
                         "multiple of 32, not {}",
                         options.kernel, options.threads);
  if (options.sharedBytes > options.chip.sharedBytes)
    return Status::error("kernel '{}': {} bytes of shared memory are more "
                         "than the {} of a block",
                         options.kernel, options.sharedBytes,
                         options.chip.sharedBytes);
  // The hardware gives warps multiples of eight for each thread.
  if (std::uint64_t all =
          std::uint64_t(options.registers + 7) / 8 * 8 * options.threads;
      all > options.chip.registers)
    return Status::error("kernel '{}': {} threads of {} registers need more "
                         "than the {} of a block",
                         options.kernel, options.threads, options.registers,
                         options.chip.registers);
  return Status::success();
}

Status BlockMachine::Impl::launch(const LaunchOptions &options,
                                  KernelEntry entry, const void *arguments,
                                  std::span<const BufferRange> buffers) {
  if (Status status = checkOptions(options); !status.ok())
    return status;
  // Aligned to 1024 bytes, which the widest swizzle needs.
  shared.resize(options.sharedBytes + 1024);
  auto start = reinterpret_cast<std::uintptr_t>(shared.data());
  std::byte *aligned = shared.data() + ((start + 1023) / 1024 * 1024 - start);
  Random random(options.seed);
  device::Index3 grid = options.grid;
  std::vector<std::uint64_t> order(std::uint64_t(grid.x) * grid.y * grid.z);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  Block block(options, entry, arguments, buffers,
              {aligned, options.sharedBytes}, stacks, random, counts);
  for (std::uint64_t number : order) {
    Status status = block.run({unsigned(number % grid.x),
                               unsigned(number / grid.x % grid.y),
                               unsigned(number / grid.x / grid.y)});
    if (!status.ok())
      return status;
    ++counts.blocks;
  }
  return Status::success();
}

} // namespace tessera::emulated
