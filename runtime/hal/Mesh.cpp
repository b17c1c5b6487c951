#include "runtime/hal/Mesh.h"

#include "runtime/artifact/Shares.h"

namespace tessera::hal {
namespace {

using Nodes = flatbuffers::Vector<flatbuffers::Offset<artifact::Node>>;

AxisList axesOf(const artifact::Collective &collective) {
  return {collective.axes()->begin(), collective.axes()->end()};
}

void collect(const Nodes &nodes, std::set<AxisList> &lists) {
  for (const artifact::Node *node : nodes) {
    if (const artifact::Loop *loop = node->step_as_Loop())
      collect(*loop->body(), lists);
    else if (const auto *collective = node->step_as_Collective())
      lists.insert(axesOf(*collective));
  }
}

} // namespace

std::set<AxisList> channelsOf(const artifact::Artifact &artifact) {
  std::set<AxisList> lists;
  for (const artifact::Share *share : *artifact.shares())
    for (const artifact::DeviceCode *code : *share->devices())
      for (const artifact::Program *program : *code->programs())
        collect(*program->steps(), lists);
  return lists;
}

Status checkWorld(const ArtifactReader &artifact, const MeshContext &context) {
  const std::uint32_t ranks = artifact::Mesh(artifact.root()).ranks();
  if (!context.world)
    return Status::success();
  const int size = context.world->size(), rank = context.world->rank();
  if (size < 0 || static_cast<std::uint32_t>(size) != ranks)
    return Status::error("{}: compiled for {} ranks, started with {}: run it "
                         "as mpirun -n {}, or compile it for another mesh",
                         artifact.path(), ranks, size, ranks);
  if (static_cast<std::uint32_t>(rank) != context.rank)
    return Status::error("{}: rank {} of its world is to be rank {} of the "
                         "mesh",
                         artifact.path(), rank, context.rank);
  return Status::success();
}

StatusOr<std::unique_ptr<MeshChannels>>
MeshChannels::open(const ArtifactReader &artifact,
                   std::span<const artifact::Program *const> programs,
                   const MeshContext &context) {
  const artifact::Mesh mesh(artifact.root());
  std::set<AxisList> used;
  for (const artifact::Program *program : programs)
    collect(*program->steps(), used);
  auto result = std::make_unique<MeshChannels>();
  int id = context.firstChannel;
  for (const AxisList &axes : channelsOf(artifact.root())) {
    const int number = id++;
    if (!used.contains(axes))
      continue;
    const std::vector<std::uint32_t> ranks = mesh.groupOf(context.rank, axes);
    auto group =
        comm::Group::of({ranks.begin(), ranks.end()}, context.world->size());
    if (!group.ok())
      return group.status();
    auto channel = context.world->open(number, group.take());
    if (!channel.ok())
      return channel.status();
    result->channels.emplace(axes, *channel);
  }
  return result;
}

comm::Channel &
MeshChannels::channelOf(const artifact::Collective &collective) const {
  return *channels.at(axesOf(collective));
}

std::vector<comm::Channel *> MeshChannels::inOrder() const {
  std::vector<comm::Channel *> list;
  for (const auto &[axes, channel] : channels)
    list.push_back(channel);
  return list;
}

std::vector<std::int32_t> meshOffsets(const ArtifactReader &artifact) {
  const artifact::Mesh mesh(artifact.root());
  const artifact::Coordinates at = mesh.coordinatesOf(artifact.rank());
  std::vector<std::int32_t> starts;
  if (artifact.share().offsets())
    for (const artifact::Cut *cut : *artifact.share().offsets())
      starts.push_back(
          static_cast<std::int32_t>(rangeAt(*cut, mesh, at).start));
  return starts;
}

} // namespace tessera::hal
