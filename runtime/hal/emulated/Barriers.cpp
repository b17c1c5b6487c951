// mbarrier objects: arrivals, bytes that bulk copies bring, phases.
#include "runtime/hal/emulated/Block.h"

namespace tessera::emulated {

Block::MemoryBarrier &Block::find(void *barrier) {
  checkShared(barrier, 8, 8);
  auto it = barriers.find(offsetOf(barrier));
  if (it == barriers.end())
    error("no mbarrier was initialized at offset {} of shared memory",
          offsetOf(barrier));
  if (threads[current].knows < it->second.number)
    error("the mbarrier at offset {} is used without a barrier after its "
          "initialization by thread {}",
          offsetOf(barrier), it->second.maker);
  return it->second;
}

// The same for a copy, which sees a barrier only after a fence of the thread
// that initialized it.
Block::MemoryBarrier &Block::findForCopy(void *barrier) {
  MemoryBarrier &found = find(barrier);
  if (!found.fenced)
    error("a bulk copy for the mbarrier at offset {}, which thread {} "
          "initialized without a fence",
          offsetOf(barrier), found.maker);
  return found;
}

// Bytes that are expected (positive) or have come (negative).
void Block::announce(MemoryBarrier &barrier, std::int64_t bytes) {
  constexpr std::int64_t kMost = (1 << 20) - 1;
  barrier.bytes += bytes;
  if (barrier.bytes > kMost || barrier.bytes < -kMost)
    error("{} bytes are expected by one mbarrier; 2^20 - 1 are possible",
          barrier.bytes);
}

void Block::settle(MemoryBarrier &barrier) {
  if (barrier.pending || barrier.bytes)
    return;
  if (barrier.notResumed)
    report(fmt::format("a phase of the mbarrier at offset {} ends before {} "
                       "threads have seen the end of the one before",
                       barrier.offset, barrier.notResumed));
  ++counts.barriers;
  barrier.notResumed = static_cast<unsigned>(barrier.waiting.size());
  barrier.pending = barrier.arrivals;
  ++barrier.phase;
  wake(barrier.waiting);
}

void Block::initBarrier(void *barrier, unsigned arrivals) {
  checkShared(barrier, 8, 8);
  MemoryBarrier &made = barriers[offsetOf(barrier)];
  if (!made.waiting.empty() || !made.incoming.empty())
    error("the mbarrier at offset {} is initialized while it is in use",
          offsetOf(barrier));
  if (!arrivals || arrivals >= 1 << 20)
    error("an mbarrier for {} arrivals; 1 to 2^20 - 1 are possible", arrivals);
  made = {};
  made.arrivals = made.pending = arrivals;
  made.maker = current;
  made.offset = offsetOf(barrier);
  made.number = made.knows = threads[current].knows = ++barriersMade;
}

void Block::fenceBarriers() {
  for (auto &[offset, barrier] : barriers)
    barrier.fenced |= barrier.maker == current;
}

void Block::arriveBarrier(void *barrier, std::uint32_t bytes) {
  MemoryBarrier &found = find(barrier);
  if (!found.pending)
    error("more arrivals at the mbarrier at offset {} than the {} that it was "
          "made for",
          offsetOf(barrier), found.arrivals);
  announce(found, bytes);
  share(found);
  --found.pending;
  settle(found);
}

void Block::expectBytes(void *barrier, std::uint32_t bytes) {
  announce(find(barrier), bytes);
}

void Block::completeBytes(void *barrier, std::uint32_t bytes) {
  MemoryBarrier &found = find(barrier);
  announce(found, -std::int64_t(bytes));
  settle(found);
}

void Block::waitBarrier(void *barrier, unsigned parity) {
  MemoryBarrier &found = find(barrier);
  while (found.phase % 2 == parity) {
    wait(found.waiting, {Awaited::Kind::parity, parity, found.offset});
    --found.notResumed;
  }
  share(found);
}

// Lands one bulk copy that a thread waits for, chosen at random, and completes
// its bytes. False if there is none.
bool Block::landOne() {
  for (auto &[offset, barrier] : barriers) {
    if (barrier.waiting.empty() || barrier.incoming.empty())
      continue;
    std::size_t pick = random() % barrier.incoming.size();
    BulkCopy copy = std::move(barrier.incoming[pick]);
    barrier.incoming.erase(barrier.incoming.begin() +
                           static_cast<std::ptrdiff_t>(pick));
    land(copy);
    barrier.bytes -= static_cast<std::int64_t>(copy.bytes);
    settle(barrier);
    return true;
  }
  return false;
}

} // namespace tessera::emulated
