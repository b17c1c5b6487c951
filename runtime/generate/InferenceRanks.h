// The ranks of a mesh that generate together: how they start, agree on what
// failed, get the program that rank 0 compiled, and end.
#pragma once
#include "runtime/comm/Channel.h"
#include "runtime/hal/Mesh.h"
#include "runtime/infer/RankCalls.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace tessera {

class InferenceRanks {
public:
  /// All ranks call it. `timeout`: how long a collective waits for a rank that
  /// does not come.
  static StatusOr<std::unique_ptr<InferenceRanks>>
  join(const comm::Launch &launch, std::chrono::seconds timeout);
  /// The ranks of `world`, which was joined as `launch` says with that timeout
  /// and must outlive this.
  static StatusOr<std::unique_ptr<InferenceRanks>>
  over(comm::World &world, const comm::Launch &launch,
       std::chrono::milliseconds timeout);

  bool leads() const { return launch.rank == 0; }
  const comm::Launch &started() const { return launch; }
  comm::World &world() { return *joined; }
  hal::MeshContext context();
  /// Of each rank of this machine: its part of the processors.
  unsigned threads() const;

  /// All ranks call it with their own status. If any failed, all get the error
  /// of the first that did, which names the rank unless that is rank 0; further
  /// calls then return that error at once. It waits for ranks that work() for
  /// as long as they do.
  Status agree(const Status &own);
  /// Runs `task`, which may take longer than the timeout: compiles, or reads
  /// weights. Ranks that wait for this one in agree() get heartbeats meanwhile.
  /// The task does not agree() or the like, and the next call does.
  Status work(const std::function<Status()> &task);
  /// The error on which all ranks agreed, if there is one.
  bool hasAgreedError() const { return !agreed.ok(); }
  /// All ranks call it: the file at `path`, which `make` makes on rank 0, is
  /// written to the others' `path`. An error reaches all.
  Status broadcastFile(const std::function<Status()> &make,
                       const std::string &path);

  /// As agree(). On success the others follow(), and rank 0 lead()s or leaves.
  Status begin(const Status &own);
  /// Rank 0: its shard as the model of all ranks.
  std::unique_ptr<PagedModel> lead(std::unique_ptr<PagedModel> own) {
    return std::make_unique<ShardedModel>(std::move(own), *calls);
  }
  /// The other ranks: make rank 0's calls until it leaves.
  Status follow(PagedModel &own) { return followCalls(own, *everybody); }
  /// Whether this rank leaves in order after `own`, its status. A follower's
  /// own error ends all ranks; so does rank 0's before begin(), as the others
  /// wait for it in agree().
  bool mayLeave(const Status &own) const {
    return own.ok() || hasAgreedError() || calls;
  }
  /// All ranks call it at the end, also after an error on which they agree.
  /// What rank 0 sends ends first.
  Status leave();

  /// Ranks that wait ask for a missing one after half of the timeout.
  std::chrono::milliseconds heartbeatInterval() const { return timeout / 4; }

private:
  InferenceRanks(const comm::Launch &launch, std::chrono::milliseconds timeout)
      : launch(launch), timeout(timeout) {}
  /// Of all ranks: whether they work, and the lengths of their messages.
  Status gather(int64_t own, std::vector<int64_t> &everyone);

  comm::Launch launch;
  std::chrono::milliseconds timeout;
  std::unique_ptr<comm::World> owned; ///< null: the caller of over() has it
  comm::World *joined = nullptr;
  comm::Channel *everybody = nullptr;
  std::unique_ptr<CallBroadcaster> calls; ///< rank 0's, after begin()
  Status agreed;
};

} // namespace tessera
