// The collectives of a channel on buffers of GPUs, by NCCL.
#pragma once
#include "runtime/comm/Channel.h"
#include "runtime/comm/nccl/NcclLibrary.h"

#include <map>
#include <mutex>

namespace tessera::comm::nccl {

/// The members of a host channel, which it needs as well: over that members
/// exchange NCCL's id, compare their calls, and are watched while the GPU
/// works.
///
/// Sums of floats are in the order that NCCL chooses for a job's shape, not in
/// that of members.
class NcclChannel {
public:
  /// All members call it, each with the context of its GPU current. Nothing
  /// else may be in flight in the host channel.
  static StatusOr<std::unique_ptr<NcclChannel>>
  create(Channel &host, std::shared_ptr<const Library> library);
  /// Destroys the communicator, after its collectives or at the end of the
  /// world.
  ~NcclChannel();

  /// Puts a collective on the stream; buffers are the device's. `isDone` says
  /// when the stream has passed it (it asks an event), from another thread. A
  /// call that differs from the other members' calls, or that lasts longer than
  /// the world's timeout, ends the world with an error that names the rank.
  /// This may be after the GPU started: if no byte may move, compare programs
  /// first.
  StatusOr<Ticket> start(const Collective &collective, Stream stream,
                         std::function<bool()> isDone);
  /// Blocks until that one is done; once for each ticket.
  Status wait(Ticket ticket);
  /// Only puts it on the stream, also one that is being captured: comparing and
  /// watching are left to the caller (start() a barrier for each replay).
  Status enqueue(const Collective &collective, Stream stream) const;

private:
  NcclChannel(Channel &host, std::shared_ptr<const Library> library)
      : host(host), library(std::move(library)) {}
  Status asyncError() const;
  Status group(const std::function<Status()> &calls) const;
  Status gather(const Collective &collective, Stream stream) const;
  Status scatter(const Collective &collective, Stream stream) const;
  Status exchange(const Collective &collective, Stream stream) const;

  Channel &host;
  std::shared_ptr<const Library> library;
  Communicator communicator = nullptr;
  std::mutex mutex;
  std::map<Ticket, std::unique_ptr<Collective>> underWay;
};

} // namespace tessera::comm::nccl
