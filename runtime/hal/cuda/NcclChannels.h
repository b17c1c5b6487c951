// NCCL communicators for the channels of a mesh, with one GPU for each rank.
#pragma once
#include "runtime/comm/nccl/NcclChannel.h"
#include "runtime/hal/Mesh.h"
#include "runtime/hal/cuda/Gpu.h"

#include <map>
#include <memory>

namespace tessera::hal::cuda {

class NcclChannels {
public:
  /// Every rank calls it for its channels, while nothing is in flight in them.
  /// A channel uses NCCL if all of its members have the library, which they
  /// compare. An error if NCCL fails, as with two ranks on one GPU.
  static StatusOr<std::unique_ptr<NcclChannels>>
  open(const MeshChannels &channels, std::shared_ptr<Gpu> gpu);
  ~NcclChannels();

  /// Null: its collectives go another way.
  comm::nccl::NcclChannel *of(const comm::Channel &channel) const;
  /// The stream of all their collectives, which is not the kernels' stream.
  Stream stream() const { return collectiveStream.get(); }

private:
  explicit NcclChannels(std::shared_ptr<Gpu> gpu) : gpu(std::move(gpu)) {}
  Status add(comm::Channel &channel,
             const std::shared_ptr<const comm::nccl::Library> &library);

  std::shared_ptr<Gpu> gpu;
  Owned<Stream> collectiveStream;
  std::map<const comm::Channel *, std::unique_ptr<comm::nccl::NcclChannel>>
      channels;
};

} // namespace tessera::hal::cuda
