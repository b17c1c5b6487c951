#include "runtime/comm/Algorithms.h"

#include "runtime/comm/Reduce.h"

#include <algorithm>
#include <cstring>

namespace tessera::comm {
namespace {

/// Where each member's part of a buffer lies: [begin[m], begin[m + 1]) bytes.
struct Parts {
  std::vector<std::uint64_t> begin{0};

  Parts(const std::vector<std::uint64_t> &counts, std::uint64_t width) {
    for (std::uint64_t count : counts)
      begin.push_back(begin.back() + count * width);
  }
  /// As even as whole elements go.
  static Parts even(std::uint64_t count, std::uint64_t width, int members) {
    const auto n = static_cast<std::uint64_t>(members);
    std::vector<std::uint64_t> counts(n, count / n);
    for (std::uint64_t m = 0; m < count % n; ++m)
      ++counts[m];
    return {counts, width};
  }
  std::uint64_t offset(int m) const {
    return begin[static_cast<std::size_t>(m)];
  }
  std::uint64_t bytes(int m) const { return offset(m + 1) - offset(m); }
  std::uint64_t total() const { return begin.back(); }
  template <typename Byte> std::span<Byte> of(Byte *buffer, int m) const {
    return {buffer + offset(m), bytes(m)};
  }
};

/// Where a buffer of no bytes may be null, which memcpy must not see.
void copyBytes(std::byte *to, const std::byte *from, std::uint64_t bytes) {
  if (bytes != 0 && to != from)
    std::memcpy(to, from, bytes);
}

std::byte *reserve(Staging &staging, std::uint64_t bytes) {
  if (staging.size() < bytes)
    staging.resize(bytes);
  return staging.data();
}

/// The members after and before `me`, as many steps away, round and round.
int after(const Traffic &traffic, int steps) {
  return (traffic.me() + steps) % traffic.members();
}
int before(const Traffic &traffic, int steps) {
  return (traffic.me() + traffic.members() - steps) % traffic.members();
}

Steps runBarrier(Traffic &traffic) {
  for (int step = 1; step < traffic.members(); step *= 2) {
    traffic.send(after(traffic, step), {});
    traffic.receive(before(traffic, step), {});
    co_await traffic.settled();
  }
}

Steps runBroadcast(const Collective &collective, Traffic &traffic) {
  const std::uint64_t bytes =
      collective.counts[0] * artifact::elementBytes(collective.type);
  const int n = traffic.members();
  // Numbered from the root, member r hears from r without its highest bit.
  const int relative = (traffic.me() - collective.root + n) % n;
  int mask = 1;
  while (mask <= relative)
    mask *= 2;
  if (relative != 0) {
    traffic.receive((relative - mask / 2 + collective.root) % n,
                    {collective.output, bytes});
    co_await traffic.settled();
  }
  for (; relative + mask < n; mask *= 2)
    traffic.send((relative + mask + collective.root) % n,
                 {collective.output, bytes});
  co_await traffic.settled();
}

/// Before, each member's buffer has its own part; afterwards it has all parts.
Steps ringGather(std::byte *buffer, const Parts &parts, Traffic &traffic) {
  for (int step = 0; step + 1 < traffic.members(); ++step) {
    traffic.send(after(traffic, 1), parts.of(buffer, before(traffic, step)));
    traffic.receive(before(traffic, 1),
                    parts.of(buffer, before(traffic, step + 1)));
    co_await traffic.settled();
  }
}

/// The same from `own` in ⌈log₂ n⌉ rounds, by way of staging, which holds parts
/// in the order me, me + 1, …: each round sends all parts received so far.
Steps logarithmicGather(const std::byte *own, std::byte *buffer,
                        const Parts &parts, Traffic &traffic,
                        Staging &staging) {
  const int n = traffic.members();
  std::byte *gathered = reserve(staging, parts.total());
  std::vector<std::uint64_t> offsets{0};
  for (int m = 0; m < n; ++m)
    offsets.push_back(offsets.back() + parts.bytes(after(traffic, m)));
  const auto first = [&](int some) {
    return offsets[static_cast<std::size_t>(some)];
  };
  copyBytes(gathered, own, parts.bytes(traffic.me()));
  for (int have = 1; have < n; have *= 2) {
    const int more = std::min(have, n - have);
    traffic.send(before(traffic, have), {gathered, first(more)});
    traffic.receive(after(traffic, have),
                    {gathered + first(have), first(have + more) - first(have)});
    co_await traffic.settled();
  }
  for (int m = 0; m < n; ++m) {
    const int member = after(traffic, m);
    copyBytes(buffer + parts.offset(member), gathered + first(m),
              parts.bytes(member));
  }
}

Steps runAllGather(const Collective &collective, Traffic &traffic,
                   Staging &staging) {
  const Parts parts(collective.counts, artifact::elementBytes(collective.type));
  if (parts.total() <= kSmallBytes) {
    co_await logarithmicGather(collective.input, collective.output, parts,
                               traffic, staging);
    co_return;
  }
  const int me = traffic.me();
  copyBytes(collective.output + parts.offset(me), collective.input,
            parts.bytes(me));
  co_await ringGather(collective.output, parts, traffic);
}

/// Of each contribution to a reduction that is staged at a time.
std::uint64_t segmentOf(int members) {
  const std::uint64_t share =
      kStagingBytes / static_cast<std::uint64_t>(members);
  return std::max<std::uint64_t>(share, 4096) / 8 * 8;
}

std::uint64_t stagedBytes(const Parts &parts, int members, int me) {
  return std::min(segmentOf(members), parts.bytes(me)) *
         static_cast<std::uint64_t>(members);
}

bool isSmallAllReduce(const Collective &collective, int members) {
  return collective.counts[0] <= kSmallBytes /
                                     artifact::elementBytes(collective.type) /
                                     static_cast<std::uint64_t>(members);
}

/// Each member receives all contributions to its part, a segment at a time, and
/// adds them in the order of members.
Steps pairwiseReduce(const Collective &collective, const Parts &parts,
                     std::byte *output, Traffic &traffic, Staging &staging) {
  const int n = traffic.members(), me = traffic.me();
  const std::uint64_t width = artifact::elementBytes(collective.type);
  const std::uint64_t segment = segmentOf(n);
  std::uint64_t longest = 0;
  for (int m = 0; m < n; ++m)
    longest = std::max(longest, parts.bytes(m));
  std::byte *staged = reserve(staging, stagedBytes(parts, n, me));
  std::vector<const std::byte *> contributions(static_cast<std::size_t>(n));
  // At least once: members without elements compare headers too.
  for (std::uint64_t at = 0; at == 0 || at < longest; at += segment) {
    const auto lengthOf = [&](int m) {
      return std::min(segment, std::max(parts.bytes(m), at) - at);
    };
    const std::uint64_t mine = lengthOf(me);
    for (int step = 1; step < n; ++step) {
      const int to = after(traffic, step), from = before(traffic, step);
      std::byte *slot = staged + mine * static_cast<std::uint64_t>(from);
      if (at == 0 || lengthOf(to) != 0)
        traffic.send(to,
                     {collective.input + parts.offset(to) + at, lengthOf(to)});
      if (at == 0 || mine != 0)
        traffic.receive(from, {slot, mine});
      contributions[static_cast<std::size_t>(from)] = slot;
    }
    co_await traffic.settled();
    if (mine == 0)
      continue;
    contributions[static_cast<std::size_t>(me)] =
        collective.input + parts.offset(me) + at;
    reduceInOrder(collective.type, collective.reduction, contributions,
                  output + at, mine / width);
  }
}

Steps runReduceScatter(const Collective &collective, Traffic &traffic,
                       Staging &staging) {
  const Parts parts(collective.counts, artifact::elementBytes(collective.type));
  co_await pairwiseReduce(collective, parts, collective.output, traffic,
                          staging);
}

Steps runSmallAllReduce(const Collective &collective, Traffic &traffic,
                        Staging &staging) {
  const std::uint64_t count = collective.counts[0];
  const auto n = static_cast<std::size_t>(traffic.members());
  const Parts parts(std::vector<std::uint64_t>(n, count),
                    artifact::elementBytes(collective.type));
  // Two halves: what arrives in any order, and the same in that of members.
  reserve(staging, 2 * parts.total());
  std::byte *ordered = staging.data() + parts.total();
  co_await logarithmicGather(collective.input, ordered, parts, traffic,
                             staging);
  std::vector<const std::byte *> contributions(n);
  for (std::size_t m = 0; m < n; ++m)
    contributions[m] = ordered + parts.begin[m];
  reduceInOrder(collective.type, collective.reduction, contributions,
                collective.output, count);
}

Steps runAllReduce(const Collective &collective, Traffic &traffic,
                   Staging &staging) {
  const std::uint64_t width = artifact::elementBytes(collective.type);
  const std::uint64_t count = collective.counts[0];
  const int n = traffic.members();
  if (isSmallAllReduce(collective, n)) {
    co_await runSmallAllReduce(collective, traffic, staging);
    co_return;
  }
  const Parts parts = Parts::even(count, width, n);
  co_await pairwiseReduce(collective, parts,
                          collective.output + parts.offset(traffic.me()),
                          traffic, staging);
  co_await ringGather(collective.output, parts, traffic);
}

/// Pieces that are empty send nothing, but the first message to a member, which
/// says what is called, is always sent.
Steps runPieces(const Collective &collective, Traffic &traffic) {
  const std::uint64_t width = artifact::elementBytes(collective.type);
  const std::size_t pieces =
      collective.counts.size() / static_cast<std::size_t>(traffic.members());
  const auto sent = [&](std::size_t i) -> std::span<const std::byte> {
    return {collective.input + collective.offsets[i] * width,
            collective.counts[i] * width};
  };
  const auto received = [&](std::size_t i) -> std::span<std::byte> {
    return {collective.output + collective.receiveOffsets[i] * width,
            collective.receiveCounts[i] * width};
  };
  for (int step = 1; step < traffic.members(); ++step) {
    const int to = after(traffic, step), from = before(traffic, step);
    const std::size_t toFirst = static_cast<std::size_t>(to) * pieces,
                      fromFirst = static_cast<std::size_t>(from) * pieces;
    traffic.send(to, {});
    traffic.receive(from, {});
    for (std::size_t i = 0; i < pieces; ++i) {
      if (collective.counts[toFirst + i] != 0)
        traffic.send(to, sent(toFirst + i));
      if (collective.receiveCounts[fromFirst + i] != 0)
        traffic.receive(from, received(fromFirst + i));
    }
  }
  const std::size_t own = static_cast<std::size_t>(traffic.me()) * pieces;
  for (std::size_t i = own; i < own + pieces; ++i)
    copyBytes(received(i).data(), sent(i).data(), sent(i).size());
  co_await traffic.settled();
}

Steps runAllToAll(const Collective &collective, Traffic &traffic) {
  const std::uint64_t width = artifact::elementBytes(collective.type);
  const Parts sent(collective.counts, width);
  const Parts received(collective.receiveCounts, width);
  for (int step = 1; step < traffic.members(); ++step) {
    const int to = after(traffic, step), from = before(traffic, step);
    traffic.send(to, sent.of(collective.input, to));
    traffic.receive(from, received.of(collective.output, from));
  }
  const int me = traffic.me();
  copyBytes(collective.output + received.offset(me),
            collective.input + sent.offset(me), sent.bytes(me));
  co_await traffic.settled();
}

Steps runExchange(const Collective &collective, Traffic &traffic) {
  const std::uint64_t width =
      collective.isDone ? 0 : artifact::elementBytes(collective.type);
  const std::uint64_t sent = collective.counts[0] * width;
  if (collective.sendTo == traffic.me()) {
    copyBytes(collective.output, collective.input, sent);
    co_return;
  }
  if (collective.receiveFrom != -1)
    traffic.receive(collective.receiveFrom,
                    {collective.output, collective.receiveCounts[0] * width});
  if (collective.sendTo != -1)
    traffic.send(collective.sendTo, {collective.input, sent});
  co_await traffic.settled();
}

} // namespace

std::uint64_t stagingBytes(const Collective &collective, int members, int me) {
  const std::uint64_t width = artifact::elementBytes(collective.type);
  if (collective.kind == CollectiveKind::allReduce) {
    const std::uint64_t count = collective.counts[0];
    return isSmallAllReduce(collective, members)
               ? 2 * count * width * static_cast<std::uint64_t>(members)
               : stagedBytes(Parts::even(count, width, members), members, me);
  }
  if (collective.kind == CollectiveKind::reduceScatter)
    return stagedBytes(Parts(collective.counts, width), members, me);
  if (collective.kind != CollectiveKind::allGather)
    return 0;
  const std::uint64_t total = Parts(collective.counts, width).total();
  return total <= kSmallBytes ? total : 0;
}

Steps runCollective(const Collective &collective, Traffic &traffic,
                    Staging &staging) {
  if (collective.isDone && !collective.isExchange())
    return runBarrier(traffic); // headers are all that it sends
  switch (collective.kind) {
  case CollectiveKind::barrier:
    return runBarrier(traffic);
  case CollectiveKind::broadcast:
    return runBroadcast(collective, traffic);
  case CollectiveKind::allReduce:
    return runAllReduce(collective, traffic, staging);
  case CollectiveKind::allGather:
    return runAllGather(collective, traffic, staging);
  case CollectiveKind::reduceScatter:
    return runReduceScatter(collective, traffic, staging);
  case CollectiveKind::allToAll:
    return collective.offsets.empty() ? runAllToAll(collective, traffic)
                                      : runPieces(collective, traffic);
  case CollectiveKind::exchange:
    return runExchange(collective, traffic);
  }
  return runBarrier(traffic);
}

} // namespace tessera::comm
