// What moves to and from shared memory by itself: cp.async, bulk copies, boxes
// of tensors; and the fences between these and ordinary accesses.
#include "runtime/hal/emulated/Block.h"
#include "runtime/hal/emulated/MatrixOperand.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tessera::emulated {

using device::Access;
using device::TensorBoxes;

// One of so many cp.async lands when it is issued.
static constexpr unsigned kEarly = 4;

//===--- cp.async ---------------------------------------------------------===//

void Block::copyAsync(void *target, const void *source, std::size_t bytes,
                      std::size_t valid) {
  if (bytes != 4 && bytes != 8 && bytes != 16)
    error("an asynchronous copy of {} bytes; 4, 8 or 16 are possible", bytes);
  if (valid > bytes)
    error("an asynchronous copy of {} bytes out of {}", valid, bytes);
  checkBounds(target, bytes, bytes);
  mayYield();
  if (valid)
    noteRead(requireGlobal(source, valid, bytes, Access::read), valid,
             thisThread());
  noteWrite(sharedPlace(offsetOf(target)), bytes, thisThread(),
            Written::inFlight);
  // The previous contents are lost at once; the next may be there at once.
  Copy copy{target, source, bytes, valid};
  if (random() % kEarly == 0)
    land(copy);
  else
    std::memset(target, 0xff, bytes);
  threads[current].open.push_back(copy);
}

void Block::land(const Copy &copy) {
  auto *target = static_cast<std::byte *>(copy.target);
  std::memcpy(target, copy.source, copy.valid);
  std::memset(target + copy.valid, 0, copy.bytes - copy.valid);
}

void Block::commitCopies() {
  Thread &me = threads[current];
  me.groups.push_back(std::exchange(me.open, {}));
}

void Block::waitCopies(unsigned pending) {
  Thread &me = threads[current];
  while (me.groups.size() > pending) {
    for (const Copy &copy : me.groups.front()) {
      // It may have read until now.
      if (copy.valid)
        noteRead(
            requireGlobal(copy.source, copy.valid, copy.bytes, Access::read),
            copy.valid, thisThread());
      land(copy);
      noteLanded(offsetOf(copy.target), copy.bytes, me.clock.now,
                 Written::byThread);
      counts.asyncBytes += copy.bytes;
    }
    me.groups.pop_front();
  }
}

//===--- fences -----------------------------------------------------------===//

void Block::fenceAsync() {
  Thread &me = threads[current];
  me.fences.push_back(me.clock.now.time++);
  fenceBarriers();
}

//===--- boxes ------------------------------------------------------------===//

namespace {
/// One row of a box, that is, its innermost dimension.
struct BoxRow {
  std::size_t offset = 0;       ///< in the box, as laid out in shared memory
  std::size_t bytes = 0;        ///< of the whole row
  std::size_t from = 0, to = 0; ///< the bytes of it that are in bounds
  std::byte *global = nullptr;  ///< of byte `from`; null where there is none
};
} // namespace

// Calls `visit` for every row of the box at `at`, in the order of shared
// memory.
template <typename Visit>
static void forEachRow(const TensorBoxes &boxes,
                       const std::array<std::int32_t, 5> &at, Visit visit) {
  std::size_t element = bytesOf(boxes.element);
  std::uint32_t index[5] = {};
  BoxRow row;
  row.bytes = boxes.box[0] * element;
  auto clip = [&](std::int64_t edge) {
    return static_cast<std::size_t>(
               std::clamp<std::int64_t>(edge, 0, boxes.box[0])) *
           element;
  };
  row.from = clip(-std::int64_t(at[0]));
  row.to = clip(static_cast<std::int64_t>(boxes.sizes[0]) - at[0]);
  while (true) {
    std::int64_t address = static_cast<std::int64_t>(boxes.base) +
                           at[0] * static_cast<std::int64_t>(element) +
                           static_cast<std::int64_t>(row.from);
    bool inside = row.from < row.to;
    for (unsigned d = 1; d < boxes.rank; ++d) {
      std::int64_t i = std::int64_t(at[d]) + index[d];
      inside &= i >= 0 && i < static_cast<std::int64_t>(boxes.sizes[d]);
      address += i * static_cast<std::int64_t>(boxes.strides[d - 1]);
    }
    row.global =
        inside ? reinterpret_cast<std::byte *>(address) : nullptr; // NOLINT
    visit(row);
    row.offset += row.bytes;
    unsigned d = 1;
    while (d < boxes.rank && ++index[d] == boxes.box[d])
      index[d++] = 0;
    if (d >= boxes.rank)
      return;
  }
}

static std::size_t bytesOfBox(const TensorBoxes &boxes) {
  std::size_t bytes = bytesOf(boxes.element);
  for (unsigned d = 0; d < boxes.rank; ++d)
    bytes *= boxes.box[d];
  return bytes;
}

void Block::acquireMap(const device::TensorMap &map) {
  if (!isAcquired(map))
    acquired[&map].push_back(threads[current].clock.now);
}

// By a thread that the running one knows of, or by itself.
bool Block::isAcquired(const device::TensorMap &map) const {
  auto found = acquired.find(&map);
  return found != acquired.end() &&
         std::any_of(
             found->second.begin(), found->second.end(),
             [&](Epoch epoch) { return threads[current].clock.knows(epoch); });
}

// The copy engine reads maps by a proxy of its own. Those among the kernel's
// parameters it sees; those in memory, after a fence in this block.
void Block::checkMap(const device::TensorMap &map) {
  const auto *at = reinterpret_cast<const std::byte *>(&map);
  const auto *first = static_cast<const std::byte *>(arguments);
  if (at >= first && at < first + options.argumentBytes)
    return;
  if (!isAcquired(map))
    error("a copy of a box by a tensor map in memory, which no acquireMap "
          "before it has made visible to the copy engine");
}

// A checked copy of one box. Every row that is in bounds must be within a
// buffer of the launch.
Block::BulkCopy Block::describe(const device::TensorMap &map,
                                const std::int32_t *at, unsigned rank,
                                const void *shared, Access access) {
  requireHopper("a bulk copy");
  checkMap(map);
  auto boxes = readTensorMap(map);
  if (!boxes.ok())
    error("a copy of a box: {}", boxes.message());
  if (boxes->rank != rank)
    error("a copy of a box of {} dimensions by a tensor map of {}", rank,
          boxes->rank);
  BulkCopy copy;
  copy.boxes = *boxes;
  copy.bytes = bytesOfBox(*boxes);
  std::copy_n(at, rank, copy.at.begin());
  checkBounds(shared, copy.bytes, 128);
  mayYield();
  copy.offset = offsetOf(shared);
  forEachRow(*boxes, copy.at, [&](const BoxRow &row) {
    if (row.global)
      requireGlobal(row.global, row.to - row.from, 1, access);
  });
  return copy;
}

// Notes what the copy reads in global memory or, if it writes there, how.
void Block::noteRows(const BulkCopy &copy, const Accessor &accessor,
                     std::optional<Written> how) {
  auto note = [&](const std::byte *at, std::size_t bytes) {
    ShadowPlace place =
        requireGlobal(at, bytes, 1,
                      !how                      ? Access::read
                      : *how == Written::adding ? Access::readWrite
                                                : Access::write);
    if (how)
      noteWrite(place, bytes, accessor, *how);
    else
      noteRead(place, bytes, accessor);
  };
  if (!copy.boxes)
    return note(copy.global, copy.bytes);
  forEachRow(*copy.boxes, copy.at, [&](const BoxRow &row) {
    if (row.global)
      note(row.global, row.to - row.from);
  });
}

// The shared-memory offset of byte `offset` of a box that begins at `start`.
static std::size_t placeOf(const TensorBoxes &boxes, std::size_t start,
                           std::size_t offset) {
  return swizzled(static_cast<std::uint32_t>(start + offset), boxes.swizzle);
}

//===--- into shared memory -----------------------------------------------===//

void Block::loadBox(void *target, const device::TensorMap &map,
                    const std::int32_t *at, unsigned rank, void *barrier) {
  arrangeLoad(describe(map, at, rank, target, Access::read), barrier);
}

void Block::checkBytes(const void *shared, const void *global,
                       std::size_t bytes, Access access) {
  if (!bytes || bytes % 16)
    error("a bulk copy of {} bytes; multiples of 16 are possible", bytes);
  requireHopper("a bulk copy");
  checkBounds(shared, bytes, 16);
  mayYield();
  requireGlobal(global, bytes, 16, access);
}

void Block::loadBytes(void *target, const void *source, std::size_t bytes,
                      void *barrier) {
  checkBytes(target, source, bytes, Access::read);
  BulkCopy copy;
  copy.offset = offsetOf(target);
  copy.bytes = bytes;
  copy.global = static_cast<std::byte *>(const_cast<void *>(source)); // NOLINT
  arrangeLoad(std::move(copy), barrier);
}

void Block::arrangeLoad(BulkCopy copy, void *barrier) {
  MemoryBarrier &found = findForCopy(barrier);
  Accessor engine =
      onBehalf({found.agent, momentOf(found) + 1}, "a bulk copy ");
  noteRows(copy, engine, std::nullopt);
  noteWrite(sharedPlace(copy.offset), copy.bytes, engine, Written::inFlight);
  std::memset(shared + copy.offset, 0xff, copy.bytes);
  found.incoming.push_back(std::move(copy));
}

void Block::land(const BulkCopy &copy) {
  counts.bulkBytes += copy.bytes;
  if (!copy.boxes) {
    std::memcpy(shared + copy.offset, copy.global, copy.bytes);
    return;
  }
  std::vector<std::byte> whole;
  forEachRow(*copy.boxes, copy.at, [&](const BoxRow &row) {
    whole.assign(row.bytes, std::byte(0));
    if (row.global)
      std::memcpy(whole.data() + row.from, row.global, row.to - row.from);
    for (std::size_t i = 0; i < row.bytes; i += 16)
      std::memcpy(shared + placeOf(*copy.boxes, copy.offset, row.offset + i),
                  whole.data() + i, 16);
  });
}

//===--- out of shared memory ---------------------------------------------===//

void Block::storeBox(const device::TensorMap &map, const std::int32_t *at,
                     unsigned rank, const void *source, bool adds) {
  BulkCopy copy =
      describe(map, at, rank, source, adds ? Access::readWrite : Access::write);
  if (adds && copy.boxes->element != device::MapElement::f32)
    error("a bulk reduction adds elements of f32 here");
  copy.adds = adds;
  issueStore(std::move(copy));
}

void Block::storeBytes(void *target, const void *source, std::size_t bytes,
                       bool adds) {
  checkBytes(source, target, bytes, adds ? Access::readWrite : Access::write);
  BulkCopy copy;
  copy.offset = offsetOf(source);
  copy.bytes = bytes;
  copy.global = static_cast<std::byte *>(target);
  copy.adds = adds;
  issueStore(std::move(copy));
}

// Of the running thread's stores in the open group.
Epoch Block::storeEpoch(Agent Thread::*agent) {
  Thread &me = threads[current];
  if (!(me.*agent))
    me.*agent = makeAgent({false, current});
  return {me.*agent, firstMoment + me.storesCommitted + 1};
}

void Block::issueStore(BulkCopy copy) {
  noteRead(sharedPlace(copy.offset), copy.bytes,
           onBehalf(storeEpoch(&Thread::storesRead), "a bulk store "));
  noteRows(copy, onBehalf(storeEpoch(&Thread::storesWritten), "a bulk store "),
           copy.adds ? Written::adding : Written::byCopy);
  if (random() % 4 == 0)
    read(copy);
  threads[current].openStores.push_back(std::move(copy));
}

void Block::commitStores() {
  Thread &me = threads[current];
  me.storeGroups.push_back(std::exchange(me.openStores, {}));
  ++me.storesCommitted;
}

void Block::waitStores(unsigned pending, bool reads) {
  Thread &me = threads[current];
  for (std::size_t i = 0; i + pending < me.storeGroups.size(); ++i)
    for (BulkCopy &store : me.storeGroups[i])
      read(store);
  for (; !reads && me.storeGroups.size() > pending; me.storeGroups.pop_front())
    for (const BulkCopy &store : me.storeGroups.front())
      write(store);
  if (pending >= me.storesCommitted)
    return;
  std::uint32_t done = firstMoment + me.storesCommitted - pending;
  Learning learning;
  learning(me.clock, Epoch{storeEpoch(&Thread::storesRead).agent, done});
  if (!reads)
    learning(me.clock, Epoch{storeEpoch(&Thread::storesWritten).agent, done});
}

void Block::read(BulkCopy &copy) {
  if (std::exchange(copy.hasRead, true))
    return;
  counts.bulkBytes += copy.bytes;
  copy.taken.resize(copy.bytes);
  for (std::size_t i = 0; i < copy.bytes; i += 16) {
    std::size_t place = copy.offset + i;
    if (copy.boxes)
      place = placeOf(*copy.boxes, copy.offset, i);
    std::memcpy(copy.taken.data() + i, shared + place, 16);
  }
}

// cp.reduce's addition takes and leaves no subnormal numbers in global memory
// (PTX ISA, cp.reduce.async.bulk).
static float flushed(float value) {
  return std::abs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value;
}

// Puts `bytes` bytes where they go, or adds the floats that they are.
static void put(std::byte *to, const std::byte *from, std::size_t bytes,
                bool adds, bool flushes) {
  if (!adds) {
    std::memcpy(to, from, bytes);
    return;
  }
  for (std::size_t i = 0; i < bytes; i += sizeof(float)) {
    float sum = 0, term = 0;
    std::memcpy(&sum, to + i, sizeof sum);
    std::memcpy(&term, from + i, sizeof term);
    sum = flushes ? flushed(flushed(sum) + flushed(term)) : sum + term;
    std::memcpy(to + i, &sum, sizeof sum);
  }
}

void Block::write(const BulkCopy &copy) {
  if (!copy.boxes) {
    put(copy.global, copy.taken.data(), copy.bytes, copy.adds,
        options.numerics.isHardware);
    return;
  }
  forEachRow(*copy.boxes, copy.at, [&](const BoxRow &row) {
    if (row.global)
      put(row.global, copy.taken.data() + row.offset + row.from,
          row.to - row.from, copy.adds, options.numerics.isHardware);
  });
}

} // namespace tessera::emulated
