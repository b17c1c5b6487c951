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

/// Who sends to member `me`, -1 if nobody does.
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
  case CollectiveKind::permute:
    break;
  }
  const int me = channel.member();
  const int to = source.targets()->Get(static_cast<flatbuffers::uoffset_t>(me));
  const int from = senderTo(source, me);
  return comm::Collective::exchange(type, nullptr, to < 0 ? 0 : elements, to,
                                    nullptr, from < 0 ? 0 : elements, from);
}

StatusOr<HostCollectives>
HostCollectives::prepare(const Commands &code, const MeshChannels *channels) {
  HostCollectives result;
  if (!code.collectives.empty() && !channels)
    return Status::error("has collectives and nobody to do them with: start as "
                         "many ranks as it was compiled for, as by mpirun");
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
                            std::byte *to) {
  One &one = list[index];
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
