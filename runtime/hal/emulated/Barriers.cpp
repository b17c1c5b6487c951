// mbarrier objects: arrivals, bytes that bulk copies bring, phases.
#include "runtime/hal/emulated/Block.h"

namespace tessera::emulated {

Block::MemoryBarrier &Block::find(void *barrier) {
  checkBounds(barrier, 8, 8);
  mayYield();
  auto it = barriers.find(offsetOf(barrier));
  if (it == barriers.end())
    error("no mbarrier was initialized at offset {} of shared memory",
          offsetOf(barrier));
  if (!threads[current].clock.knows(it->second.made))
    error("the mbarrier at offset {} is used without a barrier after its "
          "initialization by thread {}",
          offsetOf(barrier), it->second.made.agent);
  return it->second;
}

// The same for a copy, which sees a barrier only after a fence of the thread
// that initialized it.
Block::MemoryBarrier &Block::findForCopy(void *barrier) {
  MemoryBarrier &found = find(barrier);
  if (!found.fenced)
    error("a bulk copy for the mbarrier at offset {}, which thread {} "
          "initialized without a fence",
          offsetOf(barrier), found.made.agent);
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
  barrier.meeting.add({barrier.agent, momentOf(barrier)});
  barrier.ended = barrier.meeting.tell();
  wake(barrier.waiting);
}

void Block::initBarrier(void *barrier, unsigned arrivals) {
  checkBounds(barrier, 8, 8);
  mayYield();
  std::size_t offset = offsetOf(barrier);
  if (barriers.contains(offset))
    error("the mbarrier at offset {} is initialized twice", offset);
  if (!arrivals || arrivals >= 1 << 20)
    error("an mbarrier for {} arrivals; 1 to 2^20 - 1 are possible", arrivals);
  noteWrite(sharedPlace(offset), 8, thisThread(), Written::barrier);
  MemoryBarrier &made = barriers[offset];
  made.arrivals = made.pending = arrivals;
  made.offset = offset;
  made.agent = makeAgent({true, offset});
  made.made = threads[current].clock.now;
  made.ended = nothing;
}

void Block::fenceBarriers() {
  for (auto &[offset, barrier] : barriers)
    barrier.fenced |= barrier.made.agent == current;
}

void Block::arriveBarrier(void *barrier, std::uint32_t bytes) {
  MemoryBarrier &found = find(barrier);
  if (!found.pending)
    error("more arrivals at the mbarrier at offset {} than the {} that it was "
          "made for",
          offsetOf(barrier), found.arrivals);
  announce(found, bytes);
  found.meeting.release(threads[current].clock);
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
  Clock &clock = threads[current].clock;
  if (!clock.knows({found.agent, momentOf(found)}))
    found.learning(clock, found.ended);
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
    noteLanded(copy.offset, copy.bytes, {barrier.agent, momentOf(barrier) + 1},
               Written::byCopy);
    barrier.bytes -= static_cast<std::int64_t>(copy.bytes);
    settle(barrier);
    return true;
  }
  return false;
}

} // namespace tessera::emulated
