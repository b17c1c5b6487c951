// Where a session stands among the ranks of its artifact.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/comm/Channel.h"

#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

namespace tessera::hal {

/// Which rank of the artifact's mesh this is, and how it reaches the others.
struct MeshContext {
  std::uint32_t rank = 0;
  /// Of as many ranks as the mesh has, and this one's; must outlive the
  /// session. Null: programs can be looked at, but not those with collectives
  /// run.
  comm::World *world = nullptr;
  /// The first of the world's channels that is free, the same on all ranks. A
  /// session takes channelsOf() of them and leaves them open.
  int firstChannel = 0;
};

/// Axes, by number, along which members of a group differ.
using AxisList = std::vector<std::uint32_t>;

/// Every list over which an artifact has a collective, of any share: equal on
/// all ranks, so that a list's place in it can number a channel.
std::set<AxisList> channelsOf(const artifact::Artifact &artifact);

/// A rank's channels, one for each list of axes that its programs name.
class MeshChannels {
public:
  /// An error if the world is not the mesh.
  static StatusOr<std::unique_ptr<MeshChannels>>
  open(const ArtifactReader &artifact,
       std::span<const artifact::Program *const> programs,
       const MeshContext &context);
  /// Of a collective in one of the programs.
  comm::Channel &channelOf(const artifact::Collective &collective) const;
  /// All of them, by their lists of axes: what two ranks both have, both have
  /// in the same order.
  std::vector<comm::Channel *> inOrder() const;

private:
  std::map<AxisList, comm::Channel *> channels;
};

/// Why the world is not that of the artifact and the rank.
Status checkWorld(const ArtifactReader &artifact, const MeshContext &context);

/// What "mesh.offsets" has on the rank that the reader speaks for.
std::vector<std::int32_t> meshOffsets(const ArtifactReader &artifact);

} // namespace tessera::hal
