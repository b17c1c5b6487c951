// A session's rank in the mesh of its artifact.
#pragma once
#include "runtime/artifact/ArtifactReader.h"
#include "runtime/comm/Channel.h"

#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

namespace tessera::hal {

/// Which rank of the artifact's mesh this is, and its connection to the others.
struct MeshContext {
  std::uint32_t rank = 0;
  /// The world of the mesh's ranks; must outlive the session. Null: programs
  /// can be inspected, but those with collectives cannot run.
  comm::World *world = nullptr;
  /// The first of the world's channels that is free, the same on all ranks. A
  /// session takes channelsOf() of them and leaves them open.
  int firstChannel = 0;
};

/// Axes, by number, along which members of a group differ.
using AxisList = std::vector<std::uint32_t>;

/// The axis lists of all collectives of an artifact, in any share: equal on all
/// ranks, so that a list's index numbers its channel.
std::set<AxisList> channelsOf(const artifact::Artifact &artifact);

/// A rank's channels, one for each list of axes that its programs name.
class MeshChannels {
public:
  /// An error if the world does not match the mesh.
  static StatusOr<std::unique_ptr<MeshChannels>>
  open(const ArtifactReader &artifact,
       std::span<const artifact::Program *const> programs,
       const MeshContext &context);
  /// The channel of a collective in one of the programs.
  comm::Channel &channelOf(const artifact::Collective &collective) const;
  /// All of them, ordered by axis list: two ranks have their common channels in
  /// the same order.
  std::vector<comm::Channel *> inOrder() const;

private:
  std::map<AxisList, comm::Channel *> channels;
};

/// An error if the world does not match the artifact and the rank.
Status checkWorld(const ArtifactReader &artifact, const MeshContext &context);

/// The value of "mesh.offsets" on the reader's rank.
std::vector<std::int32_t> meshOffsets(const ArtifactReader &artifact);

} // namespace tessera::hal
