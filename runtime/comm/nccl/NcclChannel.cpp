#include "runtime/comm/nccl/NcclChannel.h"

#include <algorithm>

namespace tessera::comm::nccl {
namespace {

/// What NCCL reduces; nothing if it cannot.
std::optional<DataType> dataType(ElementType type) {
  switch (type) {
  case ElementType::f64:
    return kFloat64;
  case ElementType::f32:
    return kFloat32;
  case ElementType::bf16:
    return kBfloat16;
  case ElementType::f16:
    return kFloat16;
  case ElementType::i64:
    return kInt64;
  case ElementType::i32:
    return kInt32;
  case ElementType::i8:
    return kInt8;
  case ElementType::u8:
  case ElementType::i1:
    return kUint8;
  case ElementType::i16:
    return std::nullopt;
  }
  return std::nullopt;
}

Operator operatorOf(Reduction reduction) {
  switch (reduction) {
  case Reduction::sum:
    return kSum;
  case Reduction::max:
    return kMax;
  case Reduction::min:
    return kMin;
  }
  return kSum;
}

bool areEqual(const std::vector<std::uint64_t> &counts) {
  return std::adjacent_find(counts.begin(), counts.end(),
                            std::not_equal_to<>()) == counts.end();
}

} // namespace

StatusOr<std::unique_ptr<NcclChannel>>
NcclChannel::create(Channel &host, std::shared_ptr<const Library> library) {
  std::unique_ptr<NcclChannel> channel(
      new NcclChannel(host, std::move(library)));
  const Library &nccl = *channel->library;
  UniqueId id{};
  Status made;
  if (host.member() == 0)
    made = nccl.check(nccl.uniqueId(&id), "ncclGetUniqueId");
  // Also if it failed: the others wait.
  TESSERA_RETURN_IF_ERROR(host.run(
      Collective::broadcast(ElementType::u8, id.bytes, sizeof(id.bytes), 0)));
  TESSERA_RETURN_IF_ERROR(made);
  TESSERA_RETURN_IF_ERROR(nccl.check(
      nccl.join(&channel->communicator, host.group().size(), id, host.member()),
      "ncclCommInitRank"));
  return channel;
}

NcclChannel::~NcclChannel() {
  if (!communicator)
    return;
  bool isWhole = asyncError().ok();
  for (const auto &[ticket, collective] : underWay)
    isWhole &= host.wait(ticket).ok();
  // Destroying waits for the GPU, which may wait for a rank that is gone.
  if (isWhole)
    (void)library->destroy(communicator);
  else
    (void)library->abort(communicator);
}

Status NcclChannel::asyncError() const {
  Result error = kSuccess;
  TESSERA_RETURN_IF_ERROR(library->check(
      library->asyncError(communicator, &error), "ncclCommGetAsyncError"));
  if (error == kInProgress)
    return Status::success();
  return library->check(error, "a collective of GPUs", communicator);
}

StatusOr<Ticket> NcclChannel::start(const Collective &collective, Stream stream,
                                    std::function<bool()> isDone) {
  if (collective.kind != CollectiveKind::barrier)
    TESSERA_RETURN_IF_ERROR(enqueue(collective, stream));
  auto watched = std::make_unique<Collective>(collective);
  watched->isDone = [this, isDone = std::move(isDone)]() -> StatusOr<bool> {
    TESSERA_RETURN_IF_ERROR(asyncError());
    return isDone();
  };
  StatusOr<Ticket> ticket = host.start(*watched);
  if (ticket.ok()) {
    std::lock_guard lock(mutex);
    underWay.emplace(*ticket, std::move(watched));
  }
  return ticket;
}

Status NcclChannel::wait(Ticket ticket) {
  TESSERA_RETURN_IF_ERROR(host.wait(ticket));
  std::lock_guard lock(mutex);
  underWay.erase(ticket);
  return Status::success();
}

Status NcclChannel::group(const std::function<Status()> &calls) const {
  TESSERA_RETURN_IF_ERROR(
      library->check(library->groupStart(), "ncclGroupStart"));
  const Status status = calls();
  const Status end =
      library->check(library->groupEnd(), "ncclGroupEnd", communicator);
  return status.ok() ? end : status;
}

/// Bytes, since nothing is computed. NCCL gathers equal parts; others are a
/// broadcast each.
Status NcclChannel::gather(const Collective &collective, Stream stream) const {
  const std::uint64_t width = artifact::elementBytes(collective.type);
  const std::vector<std::uint64_t> &counts = collective.counts;
  if (areEqual(counts))
    return library->check(
        library->allGather(collective.input, collective.output,
                           counts[0] * width, kInt8, communicator, stream),
        "ncclAllGather", communicator);
  return group([&] {
    std::byte *part = collective.output;
    for (std::size_t m = 0; m < counts.size(); ++m) {
      const bool isMine = static_cast<int>(m) == host.member();
      const std::uint64_t bytes = counts[m] * width;
      if (bytes != 0)
        TESSERA_RETURN_IF_ERROR(library->check(
            library->broadcast(isMine ? collective.input : part, part, bytes,
                               kInt8, static_cast<int>(m), communicator,
                               stream),
            "ncclBroadcast", communicator));
      part += bytes;
    }
    return Status::success();
  });
}

/// NCCL scatters equal parts; others are a reduction each.
Status NcclChannel::scatter(const Collective &collective, Stream stream) const {
  const DataType type = *dataType(collective.type);
  const Operator reduction = operatorOf(collective.reduction);
  const std::vector<std::uint64_t> &counts = collective.counts;
  if (areEqual(counts))
    return library->check(
        library->reduceScatter(collective.input, collective.output, counts[0],
                               type, reduction, communicator, stream),
        "ncclReduceScatter", communicator);
  return group([&] {
    const std::byte *part = collective.input;
    for (std::size_t m = 0; m < counts.size(); ++m) {
      if (counts[m] != 0)
        TESSERA_RETURN_IF_ERROR(library->check(
            library->reduce(part, collective.output, counts[m], type, reduction,
                            static_cast<int>(m), communicator, stream),
            "ncclReduce", communicator));
      part += counts[m] * artifact::elementBytes(collective.type);
    }
    return Status::success();
  });
}

/// all_to_all and exchanges: sends and receives that NCCL starts together.
Status NcclChannel::exchange(const Collective &collective,
                             Stream stream) const {
  const std::uint64_t width = artifact::elementBytes(collective.type);
  const auto send = [&](const std::byte *from, std::uint64_t bytes, int to) {
    return bytes == 0 ? Status::success()
                      : library->check(library->send(from, bytes, kInt8, to,
                                                     communicator, stream),
                                       "ncclSend", communicator);
  };
  const auto receive = [&](std::byte *to, std::uint64_t bytes, int from) {
    return bytes == 0 ? Status::success()
                      : library->check(library->receive(to, bytes, kInt8, from,
                                                        communicator, stream),
                                       "ncclRecv", communicator);
  };
  return group([&] {
    if (collective.isExchange()) {
      if (collective.sendTo != -1)
        TESSERA_RETURN_IF_ERROR(send(
            collective.input, collective.counts[0] * width, collective.sendTo));
      if (collective.receiveFrom == -1)
        return Status::success();
      return receive(collective.output, collective.receiveCounts[0] * width,
                     collective.receiveFrom);
    }
    if (!collective.offsets.empty()) {
      const std::size_t pieces = collective.counts.size() /
                                 static_cast<std::size_t>(host.group().size());
      for (std::size_t i = 0; i < collective.counts.size(); ++i) {
        const int m = static_cast<int>(i / pieces);
        TESSERA_RETURN_IF_ERROR(
            send(collective.input + collective.offsets[i] * width,
                 collective.counts[i] * width, m));
        TESSERA_RETURN_IF_ERROR(
            receive(collective.output + collective.receiveOffsets[i] * width,
                    collective.receiveCounts[i] * width, m));
      }
      return Status::success();
    }
    const std::byte *from = collective.input;
    std::byte *to = collective.output;
    for (int m = 0; m < host.group().size(); ++m) {
      const auto index = static_cast<std::size_t>(m);
      const std::uint64_t sent = collective.counts[index] * width;
      const std::uint64_t received = collective.receiveCounts[index] * width;
      TESSERA_RETURN_IF_ERROR(send(from, sent, m));
      TESSERA_RETURN_IF_ERROR(receive(to, received, m));
      from += sent;
      to += received;
    }
    return Status::success();
  });
}

Status NcclChannel::enqueue(const Collective &collective, Stream stream) const {
  TESSERA_RETURN_IF_ERROR(
      checkCollective(collective, host.group(), host.member()));
  const bool reduces = collective.kind == CollectiveKind::allReduce ||
                       collective.kind == CollectiveKind::reduceScatter;
  const std::optional<DataType> type = dataType(collective.type);
  if (reduces && !type)
    return Status::error("{}: NCCL does not reduce {}: convert it first",
                         nameOf(collective),
                         artifact::EnumNameElementType(collective.type));
  switch (collective.kind) {
  case CollectiveKind::barrier:
    return Status::error("barrier: a stream has none: start it instead");
  case CollectiveKind::broadcast:
    return library->check(
        library->broadcast(collective.input, collective.output,
                           collective.counts[0] *
                               artifact::elementBytes(collective.type),
                           kInt8, collective.root, communicator, stream),
        "ncclBroadcast", communicator);
  case CollectiveKind::allReduce:
    return library->check(
        library->allReduce(
            collective.input, collective.output, collective.counts[0], *type,
            operatorOf(collective.reduction), communicator, stream),
        "ncclAllReduce", communicator);
  case CollectiveKind::allGather:
    return gather(collective, stream);
  case CollectiveKind::reduceScatter:
    return scatter(collective, stream);
  case CollectiveKind::allToAll:
  case CollectiveKind::exchange:
    return exchange(collective, stream);
  }
  return Status::error("{}: unknown to NCCL", nameOf(collective));
}

} // namespace tessera::comm::nccl
