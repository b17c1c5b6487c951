#include "runtime/hal/cpu/CpuCommandList.h"

#include <algorithm>
#include <cstring>

namespace tessera::hal {
namespace {

/// Copies and fills are split into blocks of this size: a few microseconds
/// each.
constexpr std::uint64_t kMemoryBlock = std::uint64_t(256) << 10;

/// Calls body(offset, bytes) over `bytes` in blocks, on all threads.
template <typename Body>
void forMemory(ThreadPool &pool, std::uint64_t bytes, Body &&body) {
  const std::uint64_t blocks = (bytes + kMemoryBlock - 1) / kMemoryBlock;
  // A space is at most 2^46 bytes, so its blocks fit 32 bits.
  pool.parallelFor(static_cast<std::uint32_t>(blocks),
                   [&](std::uint32_t begin, std::uint32_t end, unsigned) {
                     const std::uint64_t first = begin * kMemoryBlock;
                     body(first, std::min(end * kMemoryBlock, bytes) - first);
                   });
}

} // namespace

CpuCommandList::CpuCommandList(std::string_view program, Commands commands,
                               HostCollectives collectives,
                               std::span<KernelFunction *const> kernels,
                               ThreadPool &pool, std::byte *scratch,
                               std::uint64_t scratchStride,
                               std::span<std::byte> arena,
                               const RecordOptions &options)
    : HostCommandList(program, std::move(commands), std::move(collectives),
                      arena, options, std::nullopt),
      kernels(kernels), pool(pool), scratch(scratch),
      scratchStride(scratchStride) {}

Status CpuCommandList::launch(const LaunchCommand &launch) {
  KernelFunction *const function = kernels[launch.kernelIndex];
  const auto *first = code.instances.data() + launch.firstInstance;
  const auto *end = code.instances.data() + launch.endInstance;
  pool.parallelFor(launch.blocks, [&](std::uint32_t begin, std::uint32_t stop,
                                      unsigned thread) {
    // The instance that holds block `begin`: the first that ends after it.
    const auto *one =
        std::partition_point(first, end, [&](const LaunchInstance &instance) {
          return instance.endBlock <= begin;
        });
    for (; begin < stop; ++one) {
      const std::uint32_t upTo = std::min(stop, one->endBlock);
      if (upTo > begin)
        function(code.pointers.data() + one->firstPointer, one->sizes,
                 begin - one->firstBlock, upTo - one->firstBlock,
                 scratch + thread * scratchStride);
      begin = upTo;
    }
  });
  return Status::success();
}

void CpuCommandList::copy(std::byte *to, const std::byte *from,
                          std::uint64_t bytes) {
  const auto a = reinterpret_cast<std::uintptr_t>(from);
  const auto b = reinterpret_cast<std::uintptr_t>(to);
  if ((a > b ? a - b : b - a) < bytes) {
    std::memmove(to, from, bytes);
    return;
  }
  forMemory(pool, bytes, [&](std::uint64_t offset, std::uint64_t count) {
    std::memcpy(to + offset, from + offset, count);
  });
}

void CpuCommandList::fill(std::byte *to, std::uint8_t value,
                          std::uint64_t bytes) {
  forMemory(pool, bytes, [&](std::uint64_t offset, std::uint64_t count) {
    std::memset(to + offset, value, count);
  });
}

} // namespace tessera::hal
