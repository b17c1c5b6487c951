#include "runtime/hal/emulated/Block.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace tessera::emulated {

using device::Access;
using device::kWarp;

// Before 1 in so many accesses to shared memory, another thread runs.
static constexpr unsigned kYieldEvery = 32;
// In 1 of so many scheduling steps, an asynchronous operation progresses; in 1
// of so many of these, a wgmma reads its operands.
static constexpr unsigned kProgressEvery = 8, kTakeEvery = 32;

Block::Block(const LaunchOptions &options, KernelEntry entry,
             const void *arguments, std::span<const BufferRange> buffers,
             std::span<std::byte> memory, Stacks &stacks, Random &random,
             LaunchCounts &counts)
    : options(options), entry(entry), arguments(arguments), buffers(buffers),
      memory(memory), stacks(stacks), random(random), counts(counts),
      threads(options.threads), warps(options.threads / kWarp),
      warpgroups((warps.size() + 3) / 4), sharedShadow(memory.size(), readers),
      written(buffers, readers) {
  blockSize = {options.threads, 1, 1};
  gridSize = options.grid;
  shared = memory.data();
  sharedBytes = memory.size();
  approximates = options.numerics.isHardware;
}

// Fibers that have run the kernel to its end return. The others, of a launch
// that has failed, are unwound, which costs an exception each.
Block::~Block() {
  isOver = true;
  for (Thread &thread : threads)
    if (thread.context && thread.done)
      thread.context = std::move(thread.context).resume();
}

float Block::approximate(float exact, float argument, unsigned ulps) {
  return emulated::approximate(exact, argument, ulps, options.numerics.seed);
}

//===--- scheduling -------------------------------------------------------===//

// A fiber serves all blocks of a launch: it runs the kernel, yields, and runs
// it again when it is resumed for the next block.
void Block::start(unsigned thread) {
  threads[thread].context =
      boost::context::fiber(std::allocator_arg, StackOfThread{&stacks, thread},
                            [this, thread](boost::context::fiber &&scheduler) {
                              Thread &me = threads[thread];
                              me.back = std::move(scheduler);
                              while (!isOver) {
                                entry(*this, arguments);
                                checkThreadsEnd();
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

void Block::wait(std::vector<unsigned> &list, const Awaited &what) {
  threads[current].waitsFor = what;
  list.push_back(current);
  suspend();
}

void Block::wake(std::vector<unsigned> &list) {
  ready.insert(ready.end(), list.begin(), list.end());
  list.clear();
}

void Block::reset() {
  // NaN in every floating-point type.
  std::fill(memory.begin(), memory.end(), std::byte(0xff));
  sharedShadow.clear();
  readers.clear();
  barriers.clear();
  acquired.clear();
  agents.clear();
  for (NamedBarrier &barrier : named)
    barrier = {};
  drawTurns();
  elected = static_cast<unsigned>(random() % kWarp);
  for (Warp &warp : warps) {
    warp.fenced = false;
    warp.products = warp.groupsCommitted = warp.registers = 0;
    warp.callsDone = 0;
  }
  for (Warpgroup &group : warpgroups)
    group.products.clear();
}

Status Block::run(device::Index3 index) {
  blockIndex = index;
  closeMoments();
  reset();
  for (unsigned i = 0; i < threads.size(); ++i) {
    if (!threads[i].context)
      start(i);
    threads[i].done = false;
    threads[i].clock = {{i, firstMoment}, nothing};
    threads[i].fences.clear();
    threads[i].storesRead = threads[i].storesWritten = 0;
    threads[i].storesCommitted = 0;
    threads[i].aligned = 0;
    ready.push_back(i);
  }
  for (alive = options.threads; alive > 0;) {
    if (random() % kProgressEvery == 0 || ready.empty())
      if (!progress(ready.empty()) && ready.empty())
        return deadlock();
    if (!ready.empty()) {
      unsigned thread = nextThread();
      resume(thread);
      alive -= threads[thread].done;
    }
    if (failure)
      return *failure;
  }
  return findLeftovers();
}

// After all moments of this block begin those of the next.
void Block::closeMoments() {
  std::uint32_t last = firstMoment;
  for (const Thread &thread : threads)
    last = std::max({last, thread.clock.now.time,
                     firstMoment + thread.storesCommitted + 1});
  for (const auto &[offset, barrier] : barriers)
    last = std::max(last, momentOf(barrier) + 1);
  firstMoment = last + 1;
}

// In one block of four, threads are scheduled evenly. In the others some run
// early and some late, by warp or by thread, since defects that need a late
// thread are rarely seen otherwise.
void Block::drawTurns() {
  ranks.clear();
  unsigned kind = random() % 4;
  if (kind == 0)
    return;
  for (unsigned i = 0; i < options.threads; ++i)
    ranks.push_back(kind == 1 || i % kWarp == 0
                        ? static_cast<unsigned>(random())
                        : ranks.back());
}

unsigned Block::nextThread() {
  std::uint64_t draws = random();
  std::size_t pick = 0;
  // Of four, or of one, by 16 bits of chance each.
  for (unsigned i = 0; i < (ranks.empty() ? 1 : 4); ++i, draws >>= 16) {
    std::size_t other = (draws & 0xffff) * ready.size() >> 16;
    if (i == 0 || ranks[ready[other]] > ranks[ready[pick]])
      pick = other;
  }
  unsigned thread = std::exchange(ready[pick], ready.back());
  ready.pop_back();
  return thread;
}

// Lets something happen that no thread does; false if there is nothing. Where
// all threads wait, only what may end a wait.
bool Block::progress(bool must) {
  while (!must && !untaken.empty() && random() % kTakeEvery == 0) {
    std::size_t pick = random() % untaken.size();
    std::shared_ptr<Product> product = untaken[pick].lock();
    untaken[pick] = untaken.back();
    untaken.pop_back();
    if (!product || product->taken)
      continue;
    take(*product);
    return true;
  }
  return landOne();
}

std::string Block::describe(const Awaited &what) {
  switch (what.kind) {
  case Awaited::Kind::barrier:
    return fmt::format("barrier {} ({} threads)", what.first, what.second);
  case Awaited::Kind::lanes:
    return fmt::format("the other lanes in {} (mask {:#x})", what.what,
                       what.first);
  case Awaited::Kind::parity:
    return fmt::format("parity {} of the mbarrier at offset {}", what.first,
                       what.second);
  case Awaited::Kind::registers:
    return fmt::format("{} registers, of which {} are free", what.first,
                       what.second);
  }
  return "";
}

Status Block::deadlock() const {
  // One thread for each thing that is waited for.
  std::set<Awaited> kinds;
  std::string text;
  for (unsigned i = 0; i < threads.size() && kinds.size() < 4; ++i)
    if (const Thread &thread = threads[i];
        !thread.done && kinds.insert(thread.waitsFor).second)
      text +=
          fmt::format("{}thread {} waits for {}", kinds.size() > 1 ? ", " : "",
                      i, describe(thread.waitsFor));
  // As they are now, not as they were when the wait began.
  for (std::size_t id = 0; id < named.size(); ++id)
    if (!named[id].waiting.empty())
      text += fmt::format("; at barrier {}, {} of {} have arrived", id,
                          named[id].arrived, named[id].expected);
  for (const auto &[offset, barrier] : barriers)
    if (!barrier.waiting.empty())
      text +=
          fmt::format("; at the mbarrier at offset {}, whose phase {} goes "
                      "on, {} arrivals and {} bytes are missing",
                      offset, barrier.phase, barrier.pending, barrier.bytes);
  return Status::error(
      "kernel '{}', block ({}, {}, {}): deadlock of {} threads: {}",
      options.kernel, blockIndex.x, blockIndex.y, blockIndex.z, alive, text);
}

// What is wrong although all threads have ended.
Status Block::findLeftovers() const {
  std::string where =
      fmt::format("kernel '{}', block ({}, {}, {}): ", options.kernel,
                  blockIndex.x, blockIndex.y, blockIndex.z);
  for (const auto &[offset, barrier] : barriers)
    if (!barrier.incoming.empty())
      return Status::error("{}ends while {} bulk copies are in flight for the "
                           "mbarrier at offset {}, which no thread waits for",
                           where, barrier.incoming.size(), offset);
  for (std::size_t id = 0; id < named.size(); ++id)
    if (named[id].arrived)
      return Status::error("{}ends while {} of {} threads have come to barrier "
                           "{}, at which no thread waits",
                           where, named[id].arrived, named[id].expected, id);
  for (std::size_t i = 0; i < warps.size(); ++i) {
    const Warp &warp = warps[i];
    if (!warp.issued.empty())
      return Status::error("{}ends while mma.sync of warp {} lacks lanes",
                           where, i);
    if (!warp.open.empty() || !warp.groups.empty())
      return Status::error("{}ends while wgmma of warp {} is in flight", where,
                           i);
    if (std::size_t issued = warpgroups[i / 4].products.size();
        warp.products != issued)
      return Status::error("{}of the {} wgmma of warpgroup {}, warp {} takes "
                           "part in {}",
                           where, issued, i / 4, i, warp.products);
    if (!warp.calls.empty())
      return Status::error("{}ends while lanes of warp {} have not come to "
                           "barrier {}, to which others have",
                           where, i, warp.calls.front().id);
    if (warp.registers != warps[i / 4 * 4].registers)
      return Status::error("{}warps {} and {} of one warpgroup have {} and {} "
                           "registers a thread",
                           where, i / 4 * 4, i, warps[i / 4 * 4].registers,
                           warp.registers);
  }
  return Status::success();
}

// A thread may not leave while copies still need its block.
void Block::checkThreadsEnd() {
  Thread &me = threads[current];
  std::size_t copies = me.open.size();
  for (const std::vector<Copy> &group : me.groups)
    copies += group.size();
  if (copies)
    error("ends with {} cp.async that it has not waited for", copies);
  me.groups.clear();
  if (!me.openStores.empty())
    error("ends with {} bulk stores that no commit has closed",
          me.openStores.size());
  for (std::vector<BulkCopy> &group : me.storeGroups)
    for (BulkCopy &store : group) {
      if (!store.hasRead)
        error("ends while a bulk store still reads {} bytes at offset {} of "
              "shared memory",
              store.bytes, store.offset);
      write(store);
    }
  me.storeGroups.clear();
}

// The launch ends when the running thread yields, or at once if none runs.
void Block::report(const std::string &message) {
  if (!failure)
    failure = Status::error("kernel '{}', block ({}, {}, {}), thread {}: {}",
                            options.kernel, blockIndex.x, blockIndex.y,
                            blockIndex.z, threadIndex.x, message);
}

void Block::fail(const char *message) {
  report(message);
  suspend(); // for good: its frames go when the block does
  std::abort();
}

//===--- memory -----------------------------------------------------------===//

static bool allows(Access have, Access want) {
  return have == Access::readWrite || have == want;
}

void Block::checkGlobal(const void *address, std::size_t bytes,
                        std::size_t alignment, Access access) {
  ShadowPlace place = requireGlobal(address, bytes, alignment, access);
  if (!place.shadow)
    return;
  if (access != Access::write)
    readByThread(place, bytes);
  if (access != Access::read)
    writeByThread(place, bytes);
}

// Where that is in a buffer that allows it.
ShadowPlace Block::requireGlobal(const void *address, std::size_t bytes,
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
    return written.find(lastBuffer, at);
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (holds(buffers[i])) {
      lastBuffer = i;
      return written.find(i, at);
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

void Block::checkBounds(const void *address, std::size_t bytes,
                        std::size_t alignment) {
  std::ptrdiff_t offset = static_cast<const std::byte *>(address) - shared;
  if (offset < 0 || offset + bytes > memory.size())
    error("{} bytes at offset {} of shared memory, which has {} bytes", bytes,
          offset, memory.size());
  if (offset % alignment)
    error("{} bytes at offset {} of shared memory, not aligned to {}", bytes,
          offset, alignment);
}

void Block::requireHopper(const char *what) {
  if (!options.chip.isHopper)
    error("{} on a chip that is no sm_90a", what);
}

void Block::mayYield() {
  if (random() % kYieldEvery == 0) {
    ready.push_back(current);
    suspend();
  }
}

void Block::checkShared(const void *address, std::size_t bytes,
                        std::size_t alignment) {
  checkBounds(address, bytes, alignment);
  mayYield();
  readByThread(sharedPlace(offsetOf(address)), bytes);
}

void Block::writeShared(const void *address, std::size_t bytes,
                        std::size_t alignment) {
  checkBounds(address, bytes, alignment);
  mayYield();
  writeByThread(sharedPlace(offsetOf(address)), bytes);
}

} // namespace tessera::emulated
