// Where threads meet: named barriers, exchanges of a warp, setmaxnreg.
#include "runtime/hal/emulated/Block.h"

#include <algorithm>
#include <cstring>

namespace tessera::emulated {

using device::kWarp;

// Barriers of a block are .aligned: all lanes of a warp must come to the same
// call, and count together.
Block::AlignedCall &Block::come(unsigned id, unsigned count,
                                const device::Site &site) {
  if (id >= named.size() || count == 0 || count % kWarp ||
      count > options.threads)
    error("barrier {} of {} threads in a block of {}: 0 to 15, of whole warps",
          id, count, options.threads);
  NamedBarrier &barrier = named[id];
  if (barrier.come && barrier.expected != count)
    error("barrier {} is awaited by {} threads and by {}", id, barrier.expected,
          count);
  Thread &me = threads[current];
  Warp &warp = warps[current / kWarp];
  std::size_t number = me.aligned++ - warp.callsDone;
  if (number == warp.calls.size())
    warp.calls.push_back({site, id, count, {}, {}});
  AlignedCall &call = warp.calls[number];
  if (call.id != id || call.count != count || !(call.site == site))
    error("lanes of one warp come to different barriers: to barrier {} in line "
          "{}, column {}, and to barrier {} in line {}, column {}",
          call.id, call.site.line, call.site.column, id, site.line,
          site.column);
  barrier.expected = count;
  ++barrier.come;
  call.clocks.push_back(me.clock);
  ++me.clock.now.time;
  return call;
}

// Counts the warp once all its lanes have come, which the front call is then:
// true if that completes the barrier.
bool Block::completes(AlignedCall &call) {
  if (call.clocks.size() < kWarp)
    return false;
  NamedBarrier &barrier = named[call.id];
  for (Clock &clock : call.clocks)
    barrier.meeting.release(clock);
  barrier.waiting.insert(barrier.waiting.end(), call.waiting.begin(),
                         call.waiting.end());
  Warp &warp = warps[current / kWarp];
  warp.calls.pop_front();
  ++warp.callsDone;
  barrier.arrived += kWarp;
  if (barrier.arrived < barrier.expected)
    return false;
  ++counts.barriers;
  barrier.come -= barrier.arrived;
  barrier.arrived = 0;
  for (unsigned thread : barrier.waiting)
    threads[thread].clock.known = barrier.meeting.tell();
  barrier.meeting.clear();
  wake(barrier.waiting);
  return true;
}

void Block::barrier(unsigned id, unsigned count, const device::Site &site) {
  AlignedCall &call = come(id, count, site);
  // Woken with the others, unless it is the last, which goes on.
  call.waiting.push_back(current);
  bool isLast = completes(call);
  if (isLast) {
    std::erase(ready, current);
    return;
  }
  threads[current].waitsFor = {Awaited::Kind::barrier, id, count};
  suspend();
}

void Block::arrive(unsigned id, unsigned count, const device::Site &site) {
  completes(come(id, count, site));
}

const std::byte *Block::exchange(unsigned mask, const void *mine,
                                 std::size_t bytes, const char *what) {
  return meet(mask, mine, bytes, what, nullptr);
}

// The same; the last lane to arrive runs `last` before the others continue.
// Their contributions are then in slots[generation % 2].
const std::byte *Block::meet(unsigned mask, const void *mine, std::size_t bytes,
                             const char *what,
                             const std::function<void()> &last) {
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
             (warp.what != what && std::strcmp(warp.what, what) != 0)) {
    error("lanes of one warp meet in {} (mask {:#x}) and in {} (mask {:#x})",
          warp.what, warp.mask, what, mask);
  }
  auto &slots = warp.slots[warp.generation % 2];
  std::memcpy(slots.data() + lane * bytes, mine, bytes);
  warp.arrived |= 1u << lane;
  if (warp.arrived == mask) {
    if (mask == ~0u)
      checkSameCalls(what);
    if (last)
      last();
    warp.arrived = 0;
    ++warp.generation;
    wake(warp.waiting);
  } else {
    wait(warp.waiting, {Awaited::Kind::lanes, mask, 0, what});
  }
  return slots.data();
}

// Between two calls in which all lanes meet, all have come to the same
// barriers.
void Block::checkSameCalls(const char *what) {
  for (unsigned first = current / kWarp * kWarp, i = 1; i < kWarp; ++i)
    if (threads[first].aligned != threads[first + i].aligned)
      error("lanes 0 and {} of one warp meet in {} after {} and {} barriers", i,
            what, threads[first].aligned, threads[first + i].aligned);
}

bool Block::elect() {
  meet(~0u, &elected, sizeof elected, "elect.sync", nullptr);
  return current % kWarp == elected;
}

void Block::enter(const device::LaunchBounds &declared) {
  bounds = declared;
  if (options.threads > bounds.threads)
    error("launched with {} threads, but its launch bounds have {}",
          options.threads, bounds.threads);
}

// What a thread begins with: as compiled, or as the launch bounds divide a
// multiprocessor. ptxas ignores setmaxnreg where neither is known.
unsigned Block::entryRegisters() {
  if (options.registers)
    return (options.registers + 7) / 8 * 8;
  if (!bounds.blocks)
    error("setmaxnreg in a kernel whose launch bounds do not say how many "
          "blocks a multiprocessor has");
  return std::min(
      options.chip.registers / bounds.blocks / options.threads / 8 * 8, 248u);
}

// The pool is what the block was launched with; that other registers of the
// multiprocessor are free does not help.
void Block::setRegisters(unsigned count, bool raises) {
  Warp &warp = warps[current / kWarp];
  const char *what = raises ? "setmaxnreg.inc" : "setmaxnreg.dec";
  requireHopper(what);
  if (!warp.registers) {
    unsigned each = entryRegisters();
    for (Warp &any : warps)
      any.registers = each;
    freeRegisters = 0;
  }
  if (count < 24 || count > 256 || count % 8)
    error("{} to {} registers; multiples of 8 from 24 to 256 are possible",
          what, count);
  unsigned before = warp.registers;
  if (raises ? count < before : count > before)
    error("{} to {} registers, from {}", what, count, before);
  meet(~0u, &count, sizeof count, what, [&] {
    if (raises)
      return;
    freeRegisters += (before - count) * kWarp;
    warp.registers = count;
    wake(registerWaiters);
  });
  while (warp.registers != count) {
    unsigned needed = (count - warp.registers) * kWarp;
    if (freeRegisters < needed) {
      wait(registerWaiters, {Awaited::Kind::registers, needed, freeRegisters});
      continue;
    }
    freeRegisters -= needed;
    warp.registers = count;
  }
}

} // namespace tessera::emulated
