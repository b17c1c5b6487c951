// Where threads meet: named barriers, exchanges of a warp, setmaxnreg.
#include "runtime/hal/emulated/Block.h"

#include <cstring>

namespace tessera::emulated {

using device::kWarp;

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
  share(barrier);
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
    wait(barrier.waiting, {Awaited::Kind::barrier, id, count});
  share(barrier);
}

void Block::arrive(unsigned id, unsigned count) { completes(join(id, count)); }

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
  share(warp);
  if (warp.arrived == mask) {
    if (last)
      last();
    warp.arrived = 0;
    ++warp.generation;
    wake(warp.waiting);
  } else {
    wait(warp.waiting, {Awaited::Kind::lanes, mask, 0, what});
  }
  share(warp);
  return slots.data();
}

bool Block::elect() {
  meet(~0u, &elected, sizeof elected, "elect.sync", nullptr);
  return current % kWarp == elected;
}

void Block::setRegisters(unsigned count, bool raises) {
  Warp &warp = warps[current / kWarp];
  const char *what = raises ? "setmaxnreg.inc" : "setmaxnreg.dec";
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
