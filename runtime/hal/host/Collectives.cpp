#include "runtime/hal/host/Collectives.h"

#include "runtime/artifact/ElementTypes.h"

#include <algorithm>
#include <cstring>
#include <numeric>

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
  case CollectiveKind::exchange_rows: { // counts are known when it starts
    const auto members = static_cast<std::size_t>(channel.group().size());
    const std::size_t entries = source.rows()->bytes() / sizeof(std::int32_t);
    counts.assign(entries == 2 * members ? members : entries / 4, 0);
    comm::Collective result =
        comm::Collective::allToAll(type, nullptr, nullptr, counts, counts);
    result.offsets = result.receiveOffsets = counts;
    return result;
  }
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

/// The table of an exchange's pieces, as artifact::Collective::rows has it.
struct PieceTable {
  const std::byte *counts;
  std::size_t pieces, members;
  bool isPlaced; ///< has the first row of each piece

  PieceTable(const artifact::Collective &source, const std::byte *counts,
             std::size_t members)
      : counts(counts), members(members) {
    const std::size_t entries = source.rows()->bytes() / sizeof(std::int32_t);
    isPlaced = entries != 2 * members;
    pieces = entries / (isPlaced ? 4 : 2);
  }
  std::int32_t at(std::size_t row, std::size_t piece) const {
    std::int32_t value;
    std::memcpy(&value, counts + (row * pieces + piece) * sizeof value,
                sizeof value);
    return value;
  }
};

/// Elements of each piece and where they begin, of as many rows of `bytes` in
/// all at most. `half`: 0 for what is sent, 1 for what is received.
Status readRows(const PieceTable &table, std::size_t half,
                const artifact::Collective &source, std::uint64_t bytes,
                std::vector<std::uint64_t> &counts,
                std::vector<std::uint64_t> &offsets) {
  const std::uint64_t most =
      bytes / (source.width() * artifact::elementBytes(source.type()));
  const char *what = half ? "expects" : "sends";
  std::uint64_t all = 0;
  for (std::size_t piece = 0; piece < table.pieces; ++piece) {
    const std::int64_t count =
        table.at(table.isPlaced ? 2 * half : half, piece);
    const std::int64_t first = !table.isPlaced ? static_cast<std::int64_t>(all)
                               : count == 0    ? 0
                                               : table.at(2 * half + 1, piece);
    if (count < 0 || (all += static_cast<std::uint64_t>(count)) > most ||
        first < 0 || static_cast<std::uint64_t>(first + count) > most)
      return Status::error("exchange_rows: {} {} rows with member {}, {} in "
                           "all, and has room for {}: its program counts wrong",
                           what, count, piece / (table.pieces / table.members),
                           all, most);
    counts[piece] = static_cast<std::uint64_t>(count) * source.width();
    offsets[piece] = static_cast<std::uint64_t>(first) * source.width();
  }
  return Status::success();
}

/// Zeros what no piece receives of `bytes` bytes. Pieces do not overlap.
void clearGaps(const comm::Collective &what, std::uint64_t width, std::byte *to,
               std::uint64_t bytes, std::vector<std::size_t> &order) {
  order.resize(what.receiveCounts.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::ranges::sort(order, {}, [&](std::size_t piece) {
    return std::pair(what.receiveOffsets[piece], what.receiveCounts[piece]);
  });
  std::uint64_t filled = 0;
  for (const std::size_t piece : order) {
    const std::uint64_t begin = what.receiveOffsets[piece] * width;
    if (what.receiveCounts[piece] == 0)
      continue;
    if (begin > filled)
      std::memset(to + filled, 0, begin - filled);
    filled = std::max(filled, begin + what.receiveCounts[piece] * width);
  }
  std::memset(to + filled, 0, bytes - filled);
}

} // namespace

/// Sets the pieces of an exchange, and zeros the rows of `to` that none of them
/// receives.
Status HostCollectives::setRows(One &one, const std::byte *counts,
                                std::byte *to) {
  const artifact::Collective &source = *one.source;
  const PieceTable table(source, counts,
                         static_cast<std::size_t>(one.channel->group().size()));
  TESSERA_RETURN_IF_ERROR(readRows(table, 0, source, source.from()->bytes(),
                                   one.what.counts, one.what.offsets));
  TESSERA_RETURN_IF_ERROR(readRows(table, 1, source, source.to()->bytes(),
                                   one.what.receiveCounts,
                                   one.what.receiveOffsets));
  clearGaps(one.what, artifact::elementBytes(source.type()), to,
            source.to()->bytes(), order);
  return Status::success();
}

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
    TESSERA_RETURN_IF_ERROR(setRows(one, rows, to));
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
