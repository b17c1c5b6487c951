#include "runtime/comm/Collective.h"

#include "runtime/support/Hash.h"

#include <limits>
#include <span>

namespace tessera::comm {
namespace {

using Counts = std::vector<std::uint64_t>;

/// The sum, or the largest number if that does not hold it.
std::uint64_t sum(const Counts &counts) {
  std::uint64_t total = 0;
  for (std::uint64_t count : counts)
    if (__builtin_add_overflow(total, count, &total))
      return std::numeric_limits<std::uint64_t>::max();
  return total;
}

std::string_view kindName(CollectiveKind kind) {
  switch (kind) {
  case CollectiveKind::barrier:
    return "barrier";
  case CollectiveKind::broadcast:
    return "broadcast";
  case CollectiveKind::allReduce:
    return "all_reduce";
  case CollectiveKind::allGather:
    return "all_gather";
  case CollectiveKind::reduceScatter:
    return "reduce_scatter";
  case CollectiveKind::allToAll:
    return "all_to_all";
  case CollectiveKind::exchange:
    return "exchange";
  }
  return "unknown collective";
}

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::allReduce ||
         kind == CollectiveKind::reduceScatter;
}

std::uint64_t hashOf(const Counts &counts) {
  return hash64(std::as_bytes(std::span(counts)));
}

Status checkMember(const Collective &collective, std::string_view what,
                   int member, const Group &group) {
  if (member >= 0 && member < group.size())
    return Status::success();
  return Status::error("{}: {} is member {}, but the group {} has members 0 to "
                       "{}",
                       nameOf(collective), what, member, group.text(),
                       group.size() - 1);
}

/// What a member sends to itself, it receives.
Status checkAllToAll(const Collective &collective, const Group &group, int me) {
  const std::size_t pieces =
      collective.counts.size() / static_cast<std::size_t>(group.size());
  for (std::size_t i = 0; i < pieces; ++i) {
    const std::size_t own = static_cast<std::size_t>(me) * pieces + i;
    if (collective.counts[own] != collective.receiveCounts[own])
      return Status::error("all_to_all: member {} sends {} elements to itself "
                           "and receives {}",
                           me, collective.counts[own],
                           collective.receiveCounts[own]);
  }
  return Status::success();
}

/// Pieces: equally many for each member, each with its offset.
Status checkPieces(const Collective &collective, const Group &group) {
  const std::size_t pieces = collective.counts.size();
  if (pieces % static_cast<std::size_t>(group.size()) == 0 &&
      collective.receiveCounts.size() == pieces &&
      collective.offsets.size() == pieces &&
      collective.receiveOffsets.size() == pieces)
    return Status::success();
  return Status::error(
      "all_to_all: {} and {} pieces with {} and {} offsets for "
      "the {} members of the group {}",
      pieces, collective.receiveCounts.size(), collective.offsets.size(),
      collective.receiveOffsets.size(), group.size(), group.text());
}

Status checkExchange(const Collective &exchange, const Group &group, int me) {
  const bool sends = exchange.sendTo != -1,
             receives = exchange.receiveFrom != -1;
  if (!sends && !receives)
    return Status::error("exchange: names neither a receiver nor a sender");
  if (sends)
    TESSERA_RETURN_IF_ERROR(
        checkMember(exchange, "the receiver", exchange.sendTo, group));
  if (receives)
    TESSERA_RETURN_IF_ERROR(
        checkMember(exchange, "the sender", exchange.receiveFrom, group));
  if ((exchange.sendTo == me) != (exchange.receiveFrom == me))
    return Status::error("exchange: rank {} sends to itself or receives from "
                         "itself, but not both",
                         group.rankOf(me));
  if (exchange.sendTo == me && exchange.counts != exchange.receiveCounts)
    return Status::error("exchange: rank {} sends {} elements to itself and "
                         "receives {}",
                         group.rankOf(me), exchange.counts[0],
                         exchange.receiveCounts[0]);
  return Status::success();
}

/// How many counts a collective of that kind has, to send and to receive.
std::pair<std::size_t, std::size_t> countsOf(CollectiveKind kind,
                                             std::size_t members) {
  switch (kind) {
  case CollectiveKind::barrier:
    return {0, 0};
  case CollectiveKind::broadcast:
  case CollectiveKind::allReduce:
    return {1, 0};
  case CollectiveKind::allGather:
  case CollectiveKind::reduceScatter:
    return {members, 0};
  case CollectiveKind::allToAll:
    return {members, members};
  case CollectiveKind::exchange:
    return {1, 1};
  }
  return {0, 0};
}

} // namespace

Collective Collective::broadcast(ElementType type, void *buffer,
                                 std::uint64_t count, int root) {
  auto *bytes = static_cast<std::byte *>(buffer);
  return {.kind = CollectiveKind::broadcast,
          .type = type,
          .input = bytes,
          .output = bytes,
          .counts = {count},
          .root = root};
}

Collective Collective::allReduce(ElementType type, Reduction reduction,
                                 void *buffer, std::uint64_t count) {
  auto *bytes = static_cast<std::byte *>(buffer);
  return {.kind = CollectiveKind::allReduce,
          .type = type,
          .reduction = reduction,
          .input = bytes,
          .output = bytes,
          .counts = {count}};
}

Collective Collective::allGather(ElementType type, const void *input,
                                 void *output, Counts counts) {
  return {.kind = CollectiveKind::allGather,
          .type = type,
          .input = static_cast<const std::byte *>(input),
          .output = static_cast<std::byte *>(output),
          .counts = std::move(counts)};
}

Collective Collective::reduceScatter(ElementType type, Reduction reduction,
                                     const void *input, void *output,
                                     Counts counts) {
  return {.kind = CollectiveKind::reduceScatter,
          .type = type,
          .reduction = reduction,
          .input = static_cast<const std::byte *>(input),
          .output = static_cast<std::byte *>(output),
          .counts = std::move(counts)};
}

Collective Collective::allToAll(ElementType type, const void *input,
                                void *output, Counts sendCounts,
                                Counts receiveCounts) {
  return {.kind = CollectiveKind::allToAll,
          .type = type,
          .input = static_cast<const std::byte *>(input),
          .output = static_cast<std::byte *>(output),
          .counts = std::move(sendCounts),
          .receiveCounts = std::move(receiveCounts)};
}

Collective Collective::exchange(ElementType type, const void *input,
                                std::uint64_t sendCount, int sendTo,
                                void *output, std::uint64_t receiveCount,
                                int receiveFrom) {
  return {.kind = CollectiveKind::exchange,
          .type = type,
          .input = static_cast<const std::byte *>(input),
          .output = static_cast<std::byte *>(output),
          .counts = {sendCount},
          .receiveCounts = {receiveCount},
          .sendTo = sendTo,
          .receiveFrom = receiveFrom};
}

Collective Collective::send(ElementType type, const void *input,
                            std::uint64_t count, int to) {
  return exchange(type, input, count, to, nullptr, 0, -1);
}

Collective Collective::receive(ElementType type, void *output,
                               std::uint64_t count, int from) {
  return exchange(type, nullptr, 0, -1, output, count, from);
}

std::string_view nameOf(const Collective &collective) {
  if (!collective.isExchange() ||
      (collective.sendTo != -1 && collective.receiveFrom != -1))
    return kindName(collective.kind);
  return collective.sendTo != -1 ? "send" : "recv";
}

Status checkCollective(const Collective &collective, const Group &group,
                       int me) {
  const std::string_view name = nameOf(collective);
  const auto members = static_cast<std::size_t>(group.size());
  const auto [sent, received] = countsOf(collective.kind, members);
  const bool inPieces = collective.kind == CollectiveKind::allToAll &&
                        !collective.offsets.empty();
  if (inPieces)
    TESSERA_RETURN_IF_ERROR(checkPieces(collective, group));
  else if (collective.counts.size() != sent ||
           collective.receiveCounts.size() != received)
    return Status::error("{}: has {} and {} counts where the group {} needs {} "
                         "and {}",
                         name, collective.counts.size(),
                         collective.receiveCounts.size(), group.text(), sent,
                         received);
  const std::uint64_t width = artifact::elementBytes(collective.type);
  if (width == 0)
    return Status::error("{}: unknown element type {}", name,
                         static_cast<int>(collective.type));
  const std::uint64_t most = std::numeric_limits<std::ptrdiff_t>::max() / width;
  if (sum(collective.counts) > most || sum(collective.receiveCounts) > most)
    return Status::error("{}: has more elements than memory can hold", name);
  if (reduces(collective.kind) && collective.type == ElementType::i1 &&
      collective.reduction == Reduction::sum)
    return Status::error("{}: i1 has no sum: use max or min", name);
  if (collective.kind == CollectiveKind::broadcast)
    return checkMember(collective, "the root", collective.root, group);
  if (collective.isExchange())
    return checkExchange(collective, group, me);
  if (collective.kind == CollectiveKind::allToAll)
    return checkAllToAll(collective, group, me);
  return Status::success();
}

std::string Signature::text() const {
  constexpr std::string_view suffixes[] = {"", "(max)", "(min)"};
  std::string_view suffix;
  if (reduces(kind) && static_cast<std::size_t>(reduction) < 3)
    suffix = suffixes[static_cast<std::size_t>(reduction)];
  if (kind == CollectiveKind::barrier)
    return fmt::format("barrier #{}", sequence);
  return fmt::format("{}{} #{} {}[{}]", kindName(kind), suffix, sequence,
                     artifact::EnumNameElementType(type), elements);
}

Signature signatureOf(const Collective &collective, const Group &group,
                      int channel, std::uint64_t sequence,
                      std::uint64_t history) {
  Signature signature;
  signature.sequence = sequence;
  signature.group = group.hash();
  signature.elements = sum(collective.counts);
  signature.channel = channel;
  signature.root = collective.root;
  signature.kind = collective.kind;
  signature.type = collective.type;
  if (reduces(collective.kind))
    signature.reduction = collective.reduction;
  const bool shared =
      collective.kind != CollectiveKind::allToAll && !collective.isExchange();
  if (shared)
    signature.counts = hashOf(collective.counts);
  if (collective.isExchange())
    return signature;
  Signature hashed = signature;
  hashed.history = history;
  if (!shared)
    hashed.elements = 0;
  signature.history = hash64(std::as_bytes(std::span(&hashed, 1)));
  return signature;
}

Status compare(const Signature &mine, int myRank, const Signature &theirs,
               int theirRank, const Group &group) {
  const bool sameElements =
      mine.kind == CollectiveKind::allToAll || mine.elements == theirs.elements;
  const char *difference = nullptr;
  if (mine.sequence != theirs.sequence || mine.kind != theirs.kind ||
      mine.type != theirs.type || mine.reduction != theirs.reduction ||
      !sameElements)
    difference = "every member has to make the same calls in the same order";
  else if (mine.channel != theirs.channel || mine.group != theirs.group)
    difference = "they mean different groups or name them in another order";
  else if (mine.root != theirs.root)
    difference = "their roots differ";
  else if (mine.counts != theirs.counts)
    difference = "their counts of members differ";
  else if (mine.history != theirs.history)
    difference = "their earlier collectives differ";
  if (!difference)
    return Status::success();
  return Status::error("rank {} calls {}, rank {} {} of group {}: {}",
                       theirRank, theirs.text(), myRank, mine.text(),
                       group.text(), difference);
}

} // namespace tessera::comm
