#include "runtime/hal/emulated/Block.h"

#include <algorithm>
#include <cstring>

namespace tessera::emulated {

using device::Access;
using device::kWarp;

// Of 1 in so many accesses to shared memory, another thread runs first.
static constexpr unsigned kYieldEvery = 32;

Block::Block(const LaunchOptions &options, KernelEntry entry,
             const void *arguments, std::span<const BufferRange> buffers,
             std::span<std::byte> memory, std::mt19937_64 &random,
             LaunchCounts &counts)
    : options(options), entry(entry), arguments(arguments), buffers(buffers),
      memory(memory), random(random), counts(counts), threads(options.threads),
      warps(options.threads / kWarp) {
  blockSize = {options.threads, 1, 1};
  gridSize = options.grid;
  shared = memory.data();
  sharedBytes = memory.size();
}

Block::~Block() = default;

//===--- scheduling -------------------------------------------------------===//

// A fiber serves all blocks of a launch: it runs the kernel, hands back, and
// runs it again when it is resumed for the next block.
void Block::start(unsigned thread) {
  threads[thread].context =
      boost::context::fiber([this, thread](boost::context::fiber &&scheduler) {
        Thread &me = threads[thread];
        me.back = std::move(scheduler);
        while (true) {
          entry(*this, arguments);
          me.done = true;
          suspend();
        }
        return std::move(me.back);
      });
}

void Block::resume(unsigned thread) {
  current = thread;
  threadIndex = {thread, 0, 0};
  ++counts.switches;
  threads[thread].context = std::move(threads[thread].context).resume();
}

void Block::suspend() {
  Thread &me = threads[current];
  me.back = std::move(me.back).resume();
}

void Block::wait(std::vector<unsigned> &list, std::string what) {
  threads[current].waitsFor = std::move(what);
  list.push_back(current);
  suspend();
}

void Block::wake(std::vector<unsigned> &list) {
  ready.insert(ready.end(), list.begin(), list.end());
  list.clear();
}

Status Block::run(device::Index3 index) {
  blockIndex = index;
  // NaN in every floating-point type.
  std::fill(memory.begin(), memory.end(), std::byte(0xff));
  barriers.clear();
  for (NamedBarrier &barrier : named)
    barrier = {};
  for (unsigned i = 0; i < threads.size(); ++i) {
    if (!threads[i].context)
      start(i);
    threads[i].done = false;
    ready.push_back(i);
  }
  for (alive = options.threads; alive > 0;) {
    if (ready.empty())
      return deadlock();
    std::size_t pick = random() % ready.size();
    unsigned thread = std::exchange(ready[pick], ready.back());
    ready.pop_back();
    resume(thread);
    if (failure)
      return *failure;
    alive -= threads[thread].done;
  }
  return Status::success();
}

Status Block::deadlock() const {
  std::string text;
  unsigned listed = 0;
  for (unsigned i = 0; i < threads.size() && listed < 3; ++i)
    if (!threads[i].done) {
      text += fmt::format("{}thread {} waits for {}", listed ? ", " : "", i,
                          threads[i].waitsFor);
      ++listed;
    }
  return Status::error(
      "kernel '{}', block ({}, {}, {}): deadlock of {} threads: {}",
      options.kernel, blockIndex.x, blockIndex.y, blockIndex.z, alive, text);
}

void Block::fail(const char *message) {
  failure = Status::error("kernel '{}', block ({}, {}, {}), thread {}: {}",
                          options.kernel, blockIndex.x, blockIndex.y,
                          blockIndex.z, threadIndex.x, message);
  suspend(); // for good: its frames go when the block does
  std::abort();
}

//===--- barriers ---------------------------------------------------------===//

Block::NamedBarrier &Block::join(unsigned id, unsigned count) {
  if (id >= named.size() || count == 0 || count % kWarp ||
      count > options.threads)
    error("barrier {} of {} threads in a block of {}: 0 to 15, of whole warps",
          id, count, options.threads);
  NamedBarrier &barrier = named[id];
  if (barrier.arrived && barrier.expected != count)
    error("barrier {} is awaited by {} threads and by {}", id, barrier.expected,
          count);
  barrier.expected = count;
  ++barrier.arrived;
  return barrier;
}

bool Block::completes(NamedBarrier &barrier) {
  if (barrier.arrived < barrier.expected)
    return false;
  ++counts.barriers;
  barrier.arrived = 0;
  wake(barrier.waiting);
  return true;
}

void Block::barrier(unsigned id, unsigned count) {
  NamedBarrier &barrier = join(id, count);
  if (!completes(barrier))
    wait(barrier.waiting, fmt::format("barrier {} ({} of {} have arrived)", id,
                                      barrier.arrived, barrier.expected));
}

void Block::arrive(unsigned id, unsigned count) { completes(join(id, count)); }

const std::byte *Block::exchange(unsigned mask, const void *mine,
                                 std::size_t bytes, const char *what) {
  Warp &warp = warps[current / kWarp];
  unsigned lane = current % kWarp;
  if (!(mask >> lane & 1))
    error("{} by lane {} with a mask {:#x} that leaves it out", what, lane,
          mask);
  if (bytes > 256)
    error("{} exchanges {} bytes a lane, more than 256", what, bytes);
  if (!warp.arrived) {
    warp.mask = mask;
    warp.bytes = bytes;
    warp.what = what;
  } else if (warp.mask != mask || warp.bytes != bytes ||
             std::strcmp(warp.what, what) != 0) {
    error("lanes of one warp meet in {} (mask {:#x}) and in {} (mask {:#x})",
          warp.what, warp.mask, what, mask);
  }
  auto &slots = warp.slots[warp.generation % 2];
  std::memcpy(slots.data() + lane * bytes, mine, bytes);
  warp.arrived |= 1u << lane;
  if (warp.arrived == mask) {
    warp.arrived = 0;
    ++warp.generation;
    wake(warp.waiting);
  } else {
    wait(warp.waiting,
         fmt::format("the other lanes in {} (mask {:#x})", what, mask));
  }
  return slots.data();
}

//===--- memory -----------------------------------------------------------===//

static bool allows(Access have, Access want) {
  return have == Access::readWrite || have == want;
}

void Block::checkGlobal(const void *address, std::size_t bytes,
                        std::size_t alignment, Access access) {
  const char *verb = access == Access::read ? "read" : "write";
  if (reinterpret_cast<std::uintptr_t>(address) % alignment)
    error("{} of {} bytes at {} is not aligned to {}", verb, bytes,
          fmt::ptr(address), alignment);
  const auto *at = static_cast<const std::byte *>(address);
  auto holds = [&](const BufferRange &range) {
    return at >= range.begin && at + bytes <= range.begin + range.bytes &&
           allows(range.access, access);
  };
  if (lastBuffer < buffers.size() && holds(buffers[lastBuffer]))
    return;
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (holds(buffers[i])) {
      lastBuffer = i;
      return;
    }
  // The nearest buffer is likely the one that was meant.
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (at + bytes > buffers[i].begin &&
        at < buffers[i].begin + buffers[i].bytes)
      error("{} of {} bytes at offset {} of buffer {}, which has {} bytes and "
            "may not be accessed so",
            verb, bytes, at - buffers[i].begin, i, buffers[i].bytes);
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (at >= buffers[i].begin &&
        at < buffers[i].begin + buffers[i].bytes + 4096)
      error("{} of {} bytes at offset {} of buffer {}, which has {} bytes",
            verb, bytes, at - buffers[i].begin, i, buffers[i].bytes);
  error("{} of {} bytes at {}, in none of the launch's {} buffers", verb, bytes,
        fmt::ptr(address), buffers.size());
}

void Block::checkShared(const void *address, std::size_t bytes,
                        std::size_t alignment) {
  std::ptrdiff_t offset = static_cast<const std::byte *>(address) - shared;
  if (offset < 0 || offset + bytes > memory.size())
    error("{} bytes at offset {} of shared memory, which has {} bytes", bytes,
          offset, memory.size());
  if (offset % alignment)
    error("{} bytes at offset {} of shared memory, not aligned to {}", bytes,
          offset, alignment);
  if (random() % kYieldEvery == 0) {
    ready.push_back(current);
    suspend();
  }
}

//===--- copies -----------------------------------------------------------===//

void Block::copyAsync(void *target, const void *source, std::size_t bytes,
                      std::size_t valid) {
  if (bytes != 4 && bytes != 8 && bytes != 16)
    error("an asynchronous copy of {} bytes; 4, 8 or 16 are possible", bytes);
  if (valid > bytes)
    error("an asynchronous copy of {} bytes out of {}", valid, bytes);
  checkShared(target, bytes, bytes);
  if (valid)
    checkGlobal(source, valid, bytes, Access::read);
  threads[current].open.push_back({target, source, bytes, valid});
}

void Block::commitCopies() {
  Thread &me = threads[current];
  me.groups.push_back(std::exchange(me.open, {}));
}

void Block::waitCopies(unsigned pending) {
  Thread &me = threads[current];
  while (me.groups.size() > pending) {
    for (const Copy &copy : me.groups.front()) {
      auto *target = static_cast<std::byte *>(copy.target);
      std::memcpy(target, copy.source, copy.valid);
      std::memset(target + copy.valid, 0, copy.bytes - copy.valid);
      counts.asyncBytes += copy.bytes;
    }
    me.groups.pop_front();
  }
}

//===--- barriers in memory -----------------------------------------------===//

Block::MemoryBarrier &Block::find(void *barrier) {
  checkShared(barrier, 8, 8);
  auto it = barriers.find(static_cast<std::byte *>(barrier) - shared);
  if (it == barriers.end())
    error("no mbarrier was initialized at offset {} of shared memory",
          static_cast<std::byte *>(barrier) - shared);
  return it->second;
}

void Block::settle(MemoryBarrier &barrier) {
  if (barrier.pending || barrier.bytes)
    return;
  ++counts.barriers;
  barrier.pending = barrier.arrivals;
  ++barrier.phase;
  wake(barrier.waiting);
}

void Block::initBarrier(void *barrier, unsigned arrivals) {
  checkShared(barrier, 8, 8);
  MemoryBarrier &made = barriers[static_cast<std::byte *>(barrier) - shared];
  if (!made.waiting.empty())
    error("an mbarrier is initialized while threads wait for it");
  made = {arrivals, arrivals, 0, 0, {}};
}

void Block::arriveBarrier(void *barrier, std::uint32_t bytes) {
  MemoryBarrier &found = find(barrier);
  if (!found.pending)
    error("more arrivals at an mbarrier than the {} that it was made for",
          found.arrivals);
  found.bytes += bytes;
  --found.pending;
  settle(found);
}

void Block::expectBytes(void *barrier, std::uint32_t bytes) {
  find(barrier).bytes += bytes;
}

void Block::completeBytes(void *barrier, std::uint32_t bytes) {
  MemoryBarrier &found = find(barrier);
  found.bytes -= bytes;
  settle(found);
}

void Block::waitBarrier(void *barrier, unsigned parity) {
  MemoryBarrier &found = find(barrier);
  while (found.phase % 2 == parity)
    wait(found.waiting,
         fmt::format("phase {} of the mbarrier at offset {} ({} arrivals and "
                     "{} bytes are missing)",
                     parity, static_cast<std::byte *>(barrier) - shared,
                     found.pending, found.bytes));
}

} // namespace tessera::emulated
