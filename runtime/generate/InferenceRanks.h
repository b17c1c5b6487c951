// The ranks of a mesh that generate together: how they start, agree on what
// failed, get the program that rank 0 compiled, and end.
#pragma once
#include "runtime/comm/Channel.h"
#include "runtime/hal/Mesh.h"
#include "runtime/infer/RankCalls.h"

#include <memory>
#include <string>

namespace tessera {

class InferenceRanks {
public:
  /// All ranks call it. `timeout`: how long a collective waits for a rank that
  /// does not come.
  static StatusOr<std::unique_ptr<InferenceRanks>>
  join(const comm::Launch &launch, std::chrono::seconds timeout);

  bool leads() const { return launch.rank == 0; }
  comm::World &world() { return *joined; }
  hal::MeshContext context();
  /// Of each rank of this machine: its part of the processors.
  unsigned threads() const;

  /// All ranks call it with their own status. If any failed, all get the error
  /// of the first that did, which names the rank unless that is rank 0; further
  /// calls then return that error at once.
  Status agree(const Status &own);
  /// The error on which all ranks agreed, if there is one.
  bool hasAgreedError() const { return !agreed.ok(); }
  /// All ranks call it: the file at `path`, which rank 0 made, is written to
  /// the others' `path`. `made` is rank 0's status; an error reaches all.
  Status broadcastFile(const Status &made, const std::string &path);

  /// As agree(). On success the others follow(), and rank 0 lead()s or leaves.
  Status begin(const Status &own);
  /// Rank 0: its shard as the model of all ranks.
  std::unique_ptr<PagedModel> lead(std::unique_ptr<PagedModel> own) {
    return std::make_unique<ShardedModel>(std::move(own), *calls);
  }
  /// The other ranks: make rank 0's calls until it leaves.
  Status follow(PagedModel &own) { return followCalls(own, *everybody); }
  /// All ranks call it at the end, also after an error on which they agree.
  /// What rank 0 sends ends first.
  Status leave();

private:
  InferenceRanks(const comm::Launch &launch, std::chrono::seconds timeout)
      : launch(launch), timeout(timeout) {}

  comm::Launch launch;
  std::chrono::seconds timeout;
  std::unique_ptr<comm::World> joined;
  comm::Channel *everybody = nullptr;
  std::unique_ptr<CallBroadcaster> calls; ///< rank 0's, after begin()
  Status agreed;
};

} // namespace tessera
