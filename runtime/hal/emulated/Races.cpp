// Which accesses nothing orders: of threads, of copies and of tensor cores, to
// shared memory and to the global memory that a launch may write.
#include "runtime/hal/emulated/Block.h"

#include <algorithm>

namespace tessera::emulated {

using device::Access;
using device::kWarp;

//===--- global memory ----------------------------------------------------===//

// Buffers that overlap are one region. Those that no kernel writes need no
// shadow.
WrittenMemory::WrittenMemory(std::span<const BufferRange> buffers,
                             Readers &readers)
    : regionOf(buffers.size(), kNone) {
  std::vector<std::size_t> order(buffers.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return buffers[a].begin < buffers[b].begin;
  });
  for (std::size_t first = 0, last = 0; first < order.size(); first = last) {
    const std::byte *begin = buffers[order[first]].begin, *end = begin;
    bool isWritten = false;
    for (; last < order.size() &&
           (last == first || buffers[order[last]].begin < end);
         ++last) {
      const BufferRange &buffer = buffers[order[last]];
      end = std::max(end, buffer.begin + buffer.bytes);
      isWritten |= buffer.access != Access::read;
    }
    if (!isWritten)
      continue;
    begin -= reinterpret_cast<std::uintptr_t>(begin) % kAlignment;
    for (std::size_t i = first; i < last; ++i)
      regionOf[order[i]] = regions.size();
    regions.push_back(
        {begin, std::make_unique<Shadow>(std::size_t(end - begin), readers)});
  }
}

ShadowPlace WrittenMemory::find(std::size_t buffer,
                                const std::byte *address) const {
  if (regionOf[buffer] == kNone)
    return {};
  const Region &region = regions[regionOf[buffer]];
  return {region.shadow.get(), std::size_t(address - region.begin), true};
}

//===--- who --------------------------------------------------------------===//

Accessor Block::thisThread() const {
  const Clock &clock = threads[current].clock;
  return {clock.now, {&clock}, false, ""};
}

// The copy engine or the tensor cores, on behalf of the running thread.
Accessor Block::onBehalf(Epoch epoch, const char *what) const {
  return {epoch, {&threads[current].clock}, true, what};
}

// Tensor cores on behalf of all lanes of the running warp. Of lanes that know
// the same, two are enough: one does not know of the other's own accesses.
Accessor Block::onBehalfOfWarp(Epoch epoch, const char *what) const {
  Accessor accessor{epoch, {}, true, what};
  unsigned first = current / kWarp * kWarp, same = 0;
  const Times *known = nullptr;
  for (unsigned lane = first; lane < first + kWarp; ++lane) {
    const Clock &clock = threads[lane].clock;
    same = clock.known.get() == known ? same + 1 : 1;
    known = clock.known.get();
    if (same <= 2)
      accessor.clocks.push_back(&clock);
  }
  return accessor;
}

Agent Block::makeAgent(AgentName name) {
  agents.push_back(name);
  return static_cast<Agent>(threads.size() + warps.size() + agents.size() - 1);
}

std::string Block::describeAgent(Agent agent) const {
  if (agent < threads.size())
    return fmt::format("thread {}", agent);
  agent -= static_cast<Agent>(threads.size());
  if (agent < warps.size())
    return fmt::format("a wgmma of warp {}", agent);
  const AgentName &name = agents[agent - warps.size()];
  return name.isBarrier
             ? fmt::format("a bulk copy for the mbarrier at offset {}",
                           name.number)
             : fmt::format("a bulk store of thread {}", name.number);
}

//===--- order ------------------------------------------------------------===//

static bool allKnow(const Accessor &accessor, Epoch epoch) {
  for (const Clock *clock : accessor.clocks)
    if (!clock->knows(epoch))
      return false;
  return true;
}

// fence.proxy.async of the writer, between the write and what orders it before
// this access.
bool Block::isFenced(Epoch write, const Accessor &accessor) const {
  const auto &fences = threads[write.agent].fences;
  auto fence = std::lower_bound(fences.begin(), fences.end(), write.time);
  return fence != fences.end() && allKnow(accessor, {write.agent, *fence + 1});
}

// The last write must be known to the one that accesses the cell now.
void Block::checkWriter(const Cell &cell, const ShadowPlace &place,
                        const Accessor &accessor, const char *verb) {
  auto where = [&] {
    return fmt::format("{}{} {} memory at offset {}", accessor.what, verb,
                       place.isGlobal ? "global" : "shared", place.offset);
  };
  if (cell.how == Written::barrier)
    error("{}, which is an mbarrier", where());
  if (!cell.write.time)
    return;
  if (place.isGlobal && isOfOtherBlock(cell.write))
    error("{}, which another block of the launch has written; nothing orders "
          "blocks",
          where());
  if (cell.how == Written::inFlight)
    error("{}, into which {}{} is in flight", where(),
          cell.write.agent < threads.size() ? "a cp.async of " : "",
          describeAgent(cell.write.agent));
  if (auto other = findUnknown(cell.write, accessor))
    error("{}, which {} has written; nothing orders the two", where(),
          describeAgent(other->agent));
  // The fence is one of shared memory.
  if (accessor.isAsync && cell.how == Written::byThread &&
      (place.isGlobal || !isFenced(cell.write, accessor)))
    error("{}, which thread {} has written without fence.proxy.async", where(),
          cell.write.agent);
}

void Block::checkReaders(const Cell &cell, const ShadowPlace &place,
                         const Accessor &accessor) {
  if (!cell.read.time)
    return;
  auto where = [&] {
    return fmt::format("{}writes {} memory at offset {}", accessor.what,
                       place.isGlobal ? "global" : "shared", place.offset);
  };
  if (place.isGlobal && isOfOtherBlock(cell.read))
    error("{}, which another block of the launch has read; nothing orders "
          "blocks",
          where());
  if (auto other = findUnknown(cell.read, accessor))
    error("{}, which {} has read; nothing orders the two", where(),
          describeAgent(other->agent));
}

bool Block::isOfOtherBlock(Epoch set) const {
  return set.agent == Cell::kManyBlocks ||
         (set.agent == Cell::kSeveral || set.agent == Cell::kCrowd
              ? readers.isOutdated(set)
              : set.time < firstMoment);
}

// One of `set`, which is of this block, that the accessor does not know of.
std::optional<Epoch> Block::findUnknown(Epoch set,
                                        const Accessor &accessor) const {
  std::optional<Epoch> found;
  readers.any(set, [&](Epoch one) {
    if (!allKnow(accessor, one))
      found = one;
    return found.has_value();
  });
  return found;
}

// What a cell's readers, or adders, are when `accessor` is one of them.
Epoch Block::joined(Epoch set, const Accessor &accessor, bool isGlobal) {
  const Epoch mine = accessor.epoch;
  if (!set.time)
    return mine;
  if (isGlobal && isOfOtherBlock(set))
    return {Cell::kManyBlocks, 1};
  if (readers.has(set, mine))
    return set;
  if (findUnknown(set, accessor))
    return readers.with(set, mine);
  // What is after it is after the others.
  readers.release(set);
  return mine;
}

//===--- accesses ---------------------------------------------------------===//

// The frequent cases of the rules below, for threads: a known writer, no
// reader or a known one. Each returns false where it has decided nothing.

bool Block::isPlain(Epoch epoch, const Clock &thread, bool isGlobal) const {
  return !epoch.time ||
         (epoch.agent < Cell::kManyBlocks &&
          (!isGlobal || epoch.time >= firstMoment) && thread.knows(epoch));
}

bool Block::readsPlainly(Cell &cell, const Clock &thread, bool isGlobal) {
  if (cell.how > Written::adding || !isPlain(cell.write, thread, isGlobal))
    return false;
  if (!isPlain(cell.read, thread, isGlobal))
    return readers.joinCrowd(cell.read, thread);
  cell.read = thread.now;
  return true;
}

bool Block::writesPlainly(Cell &cell, const Clock &thread,
                          bool isGlobal) const {
  if (cell.how > Written::adding || !isPlain(cell.write, thread, isGlobal) ||
      !isPlain(cell.read, thread, isGlobal))
    return false;
  cell = {thread.now, {}, Written::byThread};
  return true;
}

void Block::readByThread(ShadowPlace place, std::size_t bytes) {
  if (!place.shadow)
    return;
  const Clock &me = threads[current].clock;
  bool isDone = true;
  place.shadow->forEach(place.offset, bytes, [&](Cell &cell, std::size_t) {
    isDone &= cell.read == me.now || readsPlainly(cell, me, place.isGlobal);
  });
  if (!isDone)
    noteRead(place, bytes, thisThread());
}

void Block::writeByThread(ShadowPlace place, std::size_t bytes) {
  if (!place.shadow)
    return;
  const Clock &me = threads[current].clock;
  bool isDone = true;
  place.shadow->forEach(place.offset, bytes, [&](Cell &cell, std::size_t) {
    isDone &= writesPlainly(cell, me, place.isGlobal);
  });
  if (!isDone)
    noteWrite(place, bytes, thisThread(), Written::byThread);
}

void Block::noteRead(ShadowPlace place, std::size_t bytes,
                     const Accessor &accessor) {
  if (!place.shadow)
    return;
  place.shadow->forEach(place.offset, bytes, [&](Cell &cell, std::size_t at) {
    if (cell.read == accessor.epoch) // and no write since
      return;
    checkWriter(cell, {nullptr, at, place.isGlobal}, accessor, "reads");
    cell.read = joined(cell.read, accessor, place.isGlobal);
  });
}

void Block::noteWrite(ShadowPlace place, std::size_t bytes,
                      const Accessor &accessor, Written how) {
  if (!place.shadow)
    return;
  place.shadow->forEach(place.offset, bytes, [&](Cell &cell, std::size_t at) {
    if (cell.write == accessor.epoch && !cell.read.time && cell.how == how &&
        how == Written::byThread)
      return;
    const ShadowPlace here{nullptr, at, place.isGlobal};
    const bool joins = how == Written::adding && cell.how == Written::adding;
    if (!joins)
      checkWriter(cell, here, accessor, "writes");
    checkReaders(cell, here, accessor);
    readers.release(cell.read);
    if (joins) {
      cell.write = joined(cell.write, accessor, place.isGlobal);
      cell.read = {};
      return;
    }
    readers.release(cell.write);
    cell = {accessor.epoch, {}, how};
  });
}

// What has been checked when it was issued is there now.
void Block::noteLanded(std::size_t offset, std::size_t bytes, Epoch epoch,
                       Written how) {
  sharedShadow.forEach(offset, bytes, [&](Cell &cell, std::size_t) {
    readers.release(cell.read);
    cell = {epoch, {}, how};
  });
}

} // namespace tessera::emulated
