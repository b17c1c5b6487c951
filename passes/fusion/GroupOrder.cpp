#include "passes/fusion/GroupOrder.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"

using namespace tessera;

void GroupOrder::append() {
  positions.push_back(ids.size());
  ids.push_back(positions.size() - 1);
}

void GroupOrder::place(unsigned id, size_t at) {
  ids[at] = id;
  positions[id] = at;
}

void GroupOrder::merge(unsigned id, unsigned other, Producers producers) {
  size_t low = std::min(positions[id], positions[other]),
         high = std::max(positions[id], positions[other]);
  // In order, so that producers are known before their users.
  llvm::DenseSet<unsigned> following{ids[low]};
  llvm::SmallVector<unsigned> before, after;
  for (size_t at = low + 1; at < high; ++at) {
    unsigned between = ids[at];
    if (between == kNone)
      continue;
    bool follows = false;
    producers(between,
              [&](unsigned from) { follows |= following.contains(from); });
    if (follows)
      following.insert(between);
    (follows ? after : before).push_back(between);
  }
  size_t at = low;
  for (unsigned each : before)
    place(each, at++);
  place(id, at++);
  for (unsigned each : after)
    place(each, at++);
  for (; at <= high; ++at)
    ids[at] = kNone;
  positions[other] = positions[id];
}

void GroupOrder::replace(unsigned id, unsigned count) {
  size_t at = positions[id];
  llvm::SmallVector<unsigned> fresh;
  for (unsigned i = 0; i < count; ++i)
    fresh.push_back(positions.size() + i);
  positions.resize(positions.size() + count);
  ids[at] = kNone;
  ids.insert(ids.begin() + at, fresh.begin(), fresh.end());
  for (; at < ids.size(); ++at)
    if (ids[at] != kNone)
      positions[ids[at]] = at;
}
