#include "runtime/generate/InferenceRanks.h"
#include "runtime/comm/Heartbeats.h"
#include "runtime/support/Text.h"
#include "runtime/train/Ranks.h"

#include <algorithm>
#include <fstream>

namespace tessera {
namespace {

using comm::Collective;
using comm::ElementType;

/// Channel 0 is MeshModel's, which reads weights; sessions have those after
/// this one.
constexpr int kCallsChannel = 1;

/// Of a rank in agree(), in the place of its message's length.
constexpr int64_t kWorks = -1;

/// A program without weights; a model of 1,000 layers takes less.
constexpr int64_t kMostProgramBytes = int64_t(1) << 32;

Status writeFile(const std::string &path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), std::streamsize(bytes.size()));
  file.close();
  return file ? Status::success()
              : Status::error("'{}' cannot be written", path);
}

} // namespace

StatusOr<std::unique_ptr<InferenceRanks>>
InferenceRanks::join(const comm::Launch &launch, std::chrono::seconds timeout) {
  comm::WorldOptions options;
  options.timeout = timeout;
  auto world = comm::World::join(launch, options);
  if (!world.ok())
    return world.status();
  auto ranks = over(**world, launch, timeout);
  if (ranks.ok())
    (*ranks)->owned = world.take();
  return ranks;
}

StatusOr<std::unique_ptr<InferenceRanks>>
InferenceRanks::over(comm::World &world, const comm::Launch &launch,
                     std::chrono::milliseconds timeout) {
  std::unique_ptr<InferenceRanks> ranks(new InferenceRanks(launch, timeout));
  ranks->joined = &world;
  auto channel = world.open(kCallsChannel, comm::Group::world(launch.size));
  if (!channel.ok())
    return channel.status();
  ranks->everybody = *channel;
  return ranks;
}

hal::MeshContext InferenceRanks::context() {
  hal::MeshContext mesh;
  mesh.rank = uint32_t(launch.rank);
  mesh.world = joined;
  mesh.firstChannel = kCallsChannel + 1;
  return mesh;
}

unsigned InferenceRanks::threads() const { return threadsPerRank(launch); }

Status InferenceRanks::gather(int64_t own, std::vector<int64_t> &everyone) {
  everyone.resize(size_t(launch.size));
  return everybody->run(
      Collective::allGather(ElementType::i64, &own, everyone.data(),
                            std::vector<uint64_t>(everyone.size(), 1)));
}

Status InferenceRanks::agree(const Status &own) {
  TESSERA_RETURN_IF_ERROR(agreed);
  // 0: no error, otherwise the length of the message and one.
  const int64_t mine = own.ok() ? 0 : int64_t(own.message().size()) + 1;
  std::vector<int64_t> all;
  do
    TESSERA_RETURN_IF_ERROR(gather(mine, all));
  while (std::ranges::find(all, kWorks) != all.end());
  const auto failed = std::ranges::find_if(all, [](int64_t x) { return x; });
  if (failed == all.end())
    return Status::success();
  const auto rank = int(failed - all.begin());
  std::string message(size_t(*failed - 1), '\0');
  if (rank == launch.rank)
    message = own.message();
  if (!message.empty())
    TESSERA_RETURN_IF_ERROR(everybody->run(Collective::broadcast(
        ElementType::u8, message.data(), message.size(), rank)));
  agreed = rank == 0 ? Status::error("{}", message)
                     : Status::error("rank {}: {}", rank, message);
  return agreed;
}

// Each heartbeat is a round of agree(), in which all take part: by a heartbeat
// or by their status.
Status InferenceRanks::work(const std::function<Status()> &task) {
  TESSERA_RETURN_IF_ERROR(agreed);
  std::vector<int64_t> all;
  comm::Heartbeats heartbeats(heartbeatInterval(),
                              [&] { return gather(kWorks, all); });
  Status done = task();
  Status failed = heartbeats.stop();
  return failed.ok() ? done : failed;
}

Status InferenceRanks::broadcastFile(const std::function<Status()> &make,
                                     const std::string &path) {
  std::string bytes;
  Status read = leads() ? work(make) : Status::success();
  if (leads() && read.ok()) {
    auto text = readTextFile(path, kMostProgramBytes);
    read = text.status();
    if (text.ok())
      bytes = text.take();
  }
  TESSERA_RETURN_IF_ERROR(agree(read));
  auto count = int64_t(bytes.size());
  TESSERA_RETURN_IF_ERROR(
      everybody->run(Collective::broadcast(ElementType::i64, &count, 1, 0)));
  bytes.resize(size_t(count));
  TESSERA_RETURN_IF_ERROR(everybody->run(
      Collective::broadcast(ElementType::u8, bytes.data(), bytes.size(), 0)));
  return agree(leads() ? Status::success() : writeFile(path, bytes));
}

Status InferenceRanks::begin(const Status &own) {
  TESSERA_RETURN_IF_ERROR(agree(own));
  if (leads())
    calls = std::make_unique<CallBroadcaster>(*everybody, heartbeatInterval());
  return Status::success();
}

Status InferenceRanks::leave() {
  if (calls)
    TESSERA_RETURN_IF_ERROR(calls->end());
  return joined->leave();
}

} // namespace tessera
