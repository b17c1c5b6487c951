#include "runtime/hal/host/Collectives.h"

#include "runtime/artifact/ElementTypes.h"

#include <algorithm>
#include <cstring>

namespace tessera::hal {
namespace {

using artifact::CollectiveKind;

// Both list them in this order.
static_assert(static_cast<int>(comm::Reduction::sum) ==
              static_cast<int>(artifact::Reduction::sum));
static_assert(static_cast<int>(comm::Reduction::max) ==
              static_cast<int>(artifact::Reduction::max));

/// The member that sends to member `me`; -1: none.
int senderTo(const artifact::Collective &source, int me) {
  const auto &targets = *source.targets();
  const auto found = std::find(targets.begin(), targets.end(), me);
  return found == targets.end() ? -1
                                : static_cast<int>(found - targets.begin());
}

} // namespace

comm::Collective collectiveOf(const artifact::Collective &source,
                              const comm::Channel &channel) {
  const artifact::ElementType type = source.type();
  const auto reduction = static_cast<comm::Reduction>(source.reduction());
  const std::uint64_t elements =
      source.from()->bytes() / artifact::elementBytes(type);
  std::vector<std::uint64_t> counts;
  if (source.counts())
    counts.assign(source.counts()->begin(), source.counts()->end());
  switch (source.kind()) {
  case CollectiveKind::all_reduce:
    return comm::Collective::allReduce(type, reduction, nullptr, elements);
  case CollectiveKind::all_gather:
    return comm::Collective::allGather(type, nullptr, nullptr, counts);
  case CollectiveKind::reduce_scatter:
    return comm::Collective::reduceScatter(type, reduction, nullptr, nullptr,
                                           counts);
  case CollectiveKind::all_to_all:
    return comm::Collective::allToAll(type, nullptr, nullptr, counts, counts);
  case CollectiveKind::exchange_rows: // counts are known when it starts
    counts.assign(static_cast<std::size_t>(channel.group().size()), 0);
    return comm::Collective::allToAll(type, nullptr, nullptr, counts, counts);
  case CollectiveKind::permute:
    break;
  }
  const int me = channel.member();
  const int to = source.targets()->Get(static_cast<flatbuffers::uoffset_t>(me));
  const int from = senderTo(source, me);
  return comm::Collective::exchange(type, nullptr, to < 0 ? 0 : elements, to,
                                    nullptr, from < 0 ? 0 : elements, from);
}

namespace {

/// Elements for each member, of as many rows of `bytes` in all at most.
Status readRows(const std::int32_t *rows, const artifact::Collective &source,
                std::uint64_t bytes, const char *what,
                std::vector<std::uint64_t> &counts) {
  const std::uint64_t most =
      bytes / (source.width() * artifact::elementBytes(source.type()));
  std::uint64_t all = 0;
  for (std::size_t member = 0; member < counts.size(); ++member) {
    std::int32_t count;
    std::memcpy(&count, rows + member, sizeof count);
    if (count < 0 || (all += static_cast<std::uint64_t>(count)) > most)
      return Status::error("exchange_rows: {} {} rows with member {}, {} in "
                           "all, and has room for {}: its program counts wrong",
                           what, count, member, all, most);
    counts[member] = static_cast<std::uint64_t>(count) * source.width();
  }
  return Status::success();
}

/// Sets the row counts of an exchange, and zeros the rows of `to` after those
/// that will be received.
Status setRows(comm::Collective &what, const artifact::Collective &source,
               const std::byte *counts, std::byte *to) {
  const auto *rows = reinterpret_cast<const std::int32_t *>(counts);
  const std::uint64_t capacity = source.to()->bytes();
  TESSERA_RETURN_IF_ERROR(
      readRows(rows, source, source.from()->bytes(), "sends", what.counts));
  TESSERA_RETURN_IF_ERROR(readRows(rows + what.counts.size(), source, capacity,
                                   "expects", what.receiveCounts));
  std::uint64_t used = 0;
  for (const std::uint64_t count : what.receiveCounts)
    used += count * artifact::elementBytes(source.type());
  std::memset(to + used, 0, capacity - used);
  return Status::success();
}

} // namespace

StatusOr<HostCollectives>
HostCollectives::prepare(const Commands &code, const MeshChannels *channels) {
  HostCollectives result;
  if (!code.collectives.empty() && !channels)
    return Status::error(
        "has collectives but there is only one rank: start as many ranks as it "
        "was compiled for, for example with mpirun");
  for (const CollectiveCommand &command : code.collectives) {
    comm::Channel &channel = channels->channelOf(*command.source);
    result.list.push_back(
        {command.source, &channel, collectiveOf(*command.source, channel), {}});
    const comm::Collective &what = result.list.back().what;
    const bool isIdle = what.isExchange() && what.sendTo < 0 &&
                        what.receiveFrom < 0; // a permutation without this rank
    if (!isIdle)
      TESSERA_RETURN_IF_ERROR(channel.prepare(what));
  }
  return result;
}

Status HostCollectives::run(std::uint32_t index, const std::byte *from,
                            std::byte *to, const std::byte *rows) {
  One &one = list[index];
  if (one.source->kind() == CollectiveKind::exchange_rows)
    TESSERA_RETURN_IF_ERROR(setRows(one.what, *one.source, rows, to));
  const bool isExchange = one.source->kind() == CollectiveKind::permute;
  if (isExchange && one.what.receiveFrom < 0)
    std::memset(to, 0, one.source->to()->bytes());
  if (isExchange && one.what.receiveFrom < 0 && one.what.sendTo < 0)
    return Status::success();
  one.what.input = from;
  one.what.output = to;
  const auto ticket = one.channel->start(one.what);
  if (!ticket.ok())
    return ticket.status();
  one.ticket = *ticket;
  return one.source->ticket() != 0 ? Status::success() : wait(index);
}

Status HostCollectives::wait(std::uint32_t index) {
  One &one = list[index];
  if (!one.ticket)
    return Status::success(); // a permutation that leaves this rank out
  const comm::Ticket ticket = *std::exchange(one.ticket, std::nullopt);
  return one.channel->wait(ticket);
}

void HostCollectives::settle() {
  for (std::uint32_t index = 0; index < list.size(); ++index)
    (void)wait(index);
}

} // namespace tessera::hal
