#include "runtime/comm/Traffic.h"

#include <algorithm>

namespace tessera::comm {

static_assert(std::has_unique_object_representations_v<Header>,
              "padding would go over the wire");

Traffic::Traffic(Transport &transport, const Group &group, int me, Tags tags,
                 const Signature &outgoing, const Signature &expected)
    : transport(transport), group(group), self(me), tags(tags),
      outgoing(outgoing), expected(expected),
      greeted(static_cast<std::size_t>(group.size())),
      heard(static_cast<std::size_t>(group.size())) {}

void Traffic::abandon() {
  for (Transfer &transfer : transfers) {
    if (std::exchange(transfer.headerPosted, false))
      transport.cancel(transfer.headerRequest);
    if (std::exchange(transfer.isPosted, false))
      transport.cancel(transfer.request);
  }
}

void Traffic::send(int member, std::span<const std::byte> bytes) {
  const auto index = static_cast<std::size_t>(member);
  Transfer &transfer = transfers.emplace_back(
      Transfer{.member = member, .sends = true, .hasHeader = !greeted[index]});
  transfer.from = bytes;
  transfer.header.bytes = bytes.size();
  transfer.header.signature = outgoing;
  greeted[index] = true;
}

void Traffic::receive(int member, std::span<std::byte> bytes) {
  const auto index = static_cast<std::size_t>(member);
  Transfer &transfer = transfers.emplace_back(
      Transfer{.member = member, .sends = false, .hasHeader = !heard[index]});
  transfer.to = bytes;
  heard[index] = true;
}

StatusOr<bool> Traffic::advance() {
  bool moved = false;
  for (Transfer &transfer : transfers) {
    StatusOr<bool> step = advance(transfer);
    if (!step.ok())
      return step;
    moved |= *step;
  }
  std::erase_if(transfers, [](const Transfer &transfer) {
    return transfer.phase == Phase::done && !transfer.headerPosted;
  });
  return moved;
}

StatusOr<bool> Traffic::advance(Transfer &transfer) {
  return transfer.sends ? advanceSend(transfer) : advanceReceive(transfer);
}

StatusOr<bool> Traffic::advanceSend(Transfer &transfer) {
  const int to = group.rankOf(transfer.member);
  bool moved = false;
  if (transfer.phase == Phase::header) {
    if (transfer.hasHeader) {
      StatusOr<Request> header = transport.send(
          to, tags.header, std::as_bytes(std::span(&transfer.header, 1)));
      if (!header.ok())
        return broken(header.status());
      transfer.headerRequest = *header;
      transfer.headerPosted = true;
    }
    transfer.phase = Phase::data;
    if (!transfer.from.empty()) {
      StatusOr<Request> data = transport.send(to, tags.data, transfer.from);
      if (!data.ok())
        return broken(data.status());
      transfer.request = *data;
      transfer.isPosted = true;
    }
    moved = true;
  }
  const auto settle = [&](bool &isPosted, Request request) {
    if (!isPosted)
      return Status::success();
    StatusOr<bool> through = transport.test(request);
    if (!through.ok() || *through)
      isPosted = false;
    moved |= through.ok() && *through;
    return through.ok() ? Status::success() : broken(through.status());
  };
  TESSERA_RETURN_IF_ERROR(
      settle(transfer.headerPosted, transfer.headerRequest));
  TESSERA_RETURN_IF_ERROR(settle(transfer.isPosted, transfer.request));
  if (!transfer.headerPosted && !transfer.isPosted)
    transfer.phase = Phase::done;
  return moved;
}

StatusOr<bool> Traffic::advanceReceive(Transfer &transfer) {
  const int from = group.rankOf(transfer.member);
  bool moved = false;
  while (transfer.phase != Phase::done) {
    if (!transfer.isPosted) {
      const bool isHeader = transfer.phase == Phase::header;
      if (isHeader ? !transfer.hasHeader : transfer.to.empty()) {
        transfer.phase = isHeader ? Phase::data : Phase::done;
        continue;
      }
      StatusOr<Request> posted = transport.receive(
          from, isHeader ? tags.header : tags.data,
          isHeader ? std::as_writable_bytes(std::span(&transfer.header, 1))
                   : transfer.to);
      if (!posted.ok())
        return broken(posted.status());
      transfer.request = *posted;
      transfer.isPosted = true;
    }
    StatusOr<bool> through = transport.test(transfer.request);
    if (through.ok() && !*through)
      return moved;
    transfer.isPosted = false;
    if (!through.ok())
      return broken(through.status());
    moved = true;
    if (transfer.phase == Phase::header) {
      TESSERA_RETURN_IF_ERROR(check(transfer));
      transfer.phase = Phase::data;
    } else {
      transfer.phase = Phase::done;
    }
  }
  return moved;
}

Status Traffic::broken(const Status &status) const {
  return Status::error("in {} of group {}: {}", expected.text(), group.text(),
                       status.message());
}

Status Traffic::check(const Transfer &transfer) const {
  const int from = group.rankOf(transfer.member), to = group.rankOf(self);
  if (transfer.header.magic != Header::kMagic)
    return Status::error(
        "rank {} received a message from rank {} that is not a collective's "
        "header: start the same executable on all "
        "ranks",
        to, from);
  const Signature &theirs = transfer.header.signature;
  if (expected.kind == CollectiveKind::exchange &&
      theirs.kind == CollectiveKind::exchange &&
      (theirs.type != expected.type || theirs.elements != expected.elements ||
       theirs.sequence != expected.sequence))
    return Status::error("rank {} sends #{} {}[{}], rank {} receives #{} {}[{}]"
                         " from it in group {}: both have to name the same",
                         from, theirs.sequence,
                         artifact::EnumNameElementType(theirs.type),
                         theirs.elements, to, expected.sequence,
                         artifact::EnumNameElementType(expected.type),
                         expected.elements, group.text());
  TESSERA_RETURN_IF_ERROR(compare(expected, to, theirs, from, group));
  if (transfer.header.bytes == transfer.to.size())
    return Status::success();
  return Status::error("in {} of group {} rank {} sends {} bytes to rank {}, "
                       "which expects {}: their counts differ",
                       expected.text(), group.text(), from,
                       transfer.header.bytes, to, transfer.to.size());
}

std::vector<int> Traffic::openPeers() const {
  std::vector<int> peers;
  for (const Transfer &transfer : transfers)
    if (transfer.phase != Phase::done)
      peers.push_back(group.rankOf(transfer.member));
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

} // namespace tessera::comm
