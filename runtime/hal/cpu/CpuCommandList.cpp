#include "runtime/hal/cpu/CpuCommandList.h"

#include "runtime/hal/cpu/FiniteCheck.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tessera::hal {
namespace {

/// Copies and fills are cut into blocks of this size: a few microseconds each.
constexpr std::uint64_t kMemoryBlock = std::uint64_t(256) << 10;

std::uint64_t now() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

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
                               ThreadPool &pool, std::byte *scratch,
                               std::uint64_t scratchStride,
                               std::span<std::byte> arena,
                               const RecordOptions &options)
    : program(program), code(std::move(commands)), pool(pool), scratch(scratch),
      scratchStride(scratchStride),
      arena(options.checkFinite ? arena : std::span<std::byte>()),
      check(options.checkFinite), firstPointers(code.pointers),
      tripsLeft(code.loops.size()) {
  if (options.profile)
    measured =
        std::make_unique<Profile>(program, code.steps, options.traceEvents);
}

Status CpuCommandList::run() {
  // A run that a failed check cut short left pointers inside loops.
  std::copy(firstPointers.begin(), firstPointers.end(), code.pointers.begin());
  // What a kernel leaves unwritten must not pass for its result.
  if (!arena.empty())
    std::memset(arena.data(), 0, arena.size());
  for (std::uint32_t next = 0; next < code.commands.size();) {
    const Command &command = code.commands[next++];
    if (command.kind == Command::Kind::loopBegin)
      tripsLeft[command.index] = code.loops[command.index].trip;
    else if (command.kind == Command::Kind::loopEnd)
      next = loopEnd(command.index, next);
    else
      TESSERA_RETURN_IF_ERROR(step(command));
  }
  return Status::success();
}

std::uint32_t CpuCommandList::loopEnd(std::uint32_t index, std::uint32_t next) {
  const LoopCommand &loop = code.loops[index];
  const bool again = --tripsLeft[index] != 0;
  for (std::uint32_t i = loop.firstAdvance; i < loop.endAdvance; ++i) {
    const Advance &advance = code.advances[i];
    void *&pointer = code.pointers[advance.pointer];
    auto *address = static_cast<std::byte *>(pointer);
    pointer = again ? address + advance.stride
                    : address - advance.stride * (loop.trip - 1);
  }
  return again ? loop.firstCommand : next;
}

Status CpuCommandList::step(const Command &command) {
  const std::uint64_t start = measured ? now() : 0;
  switch (command.kind) {
  case Command::Kind::launch:
    launch(code.launches[command.index]);
    break;
  case Command::Kind::copy:
    copy(code.copies[command.index]);
    break;
  default:
    fill(code.fills[command.index]);
    break;
  }
  if (measured)
    measured->add(command.step, start, now());
  if (check && command.kind == Command::Kind::launch)
    return checkFinite(code.launches[command.index], command.step);
  return Status::success();
}

void CpuCommandList::launch(const LaunchCommand &launch) {
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
        launch.function(code.pointers.data() + one->firstPointer, one->sizes,
                        begin - one->firstBlock, upTo - one->firstBlock,
                        scratch + thread * scratchStride);
      begin = upTo;
    }
  });
}

void CpuCommandList::copy(const CopyCommand &copy) {
  auto *from = static_cast<const std::byte *>(code.pointers[copy.from]);
  auto *to = static_cast<std::byte *>(code.pointers[copy.to]);
  const auto a = reinterpret_cast<std::uintptr_t>(from);
  const auto b = reinterpret_cast<std::uintptr_t>(to);
  if ((a > b ? a - b : b - a) < copy.bytes) {
    std::memmove(to, from, copy.bytes);
    return;
  }
  forMemory(pool, copy.bytes, [&](std::uint64_t offset, std::uint64_t bytes) {
    std::memcpy(to + offset, from + offset, bytes);
  });
}

void CpuCommandList::fill(const FillCommand &fill) {
  auto *to = static_cast<std::byte *>(code.pointers[fill.to]);
  forMemory(pool, fill.bytes, [&](std::uint64_t offset, std::uint64_t bytes) {
    std::memset(to + offset, fill.value, bytes);
  });
}

Status CpuCommandList::checkFinite(const LaunchCommand &launch,
                                   std::uint32_t step) const {
  const artifact::Kernel &kernel = *launch.kernel;
  if (!kernel.element_types())
    return Status::success();
  for (std::uint32_t i = launch.firstInstance; i < launch.endInstance; ++i) {
    const LaunchInstance &one = code.instances[i];
    for (std::uint32_t arg = 0; arg < kernel.access()->size(); ++arg) {
      if (kernel.access()->Get(arg) == artifact::Access::read)
        continue;
      const artifact::ElementType type = kernel.element_types()->Get(arg);
      const std::span<const std::byte> bytes(
          static_cast<const std::byte *>(code.pointers[one.firstPointer + arg]),
          one.source->args()->Get(arg)->bytes());
      if (const auto bad = findNotFinite(bytes, type))
        return Status::error(
            "program '{}': step {} ({}): kernel '{}' wrote {} at element {} of "
            "argument {} ({}), instance {}",
            program, step, code.steps[step].origin, code.steps[step].what,
            bad->isNan ? "NaN" : "infinity", bad->index, arg,
            artifact::EnumNameElementType(type), i - launch.firstInstance);
    }
  }
  return Status::success();
}

} // namespace tessera::hal
