#include "runtime/hal/cuda/NcclChannels.h"

namespace tessera::hal::cuda {

using comm::nccl::Library;
using comm::nccl::NcclChannel;

// All ranks open the groups in the same order, so a rank that waits in a group
// waits for members that will reach it.
StatusOr<std::unique_ptr<NcclChannels>>
NcclChannels::open(const MeshChannels &channels, std::shared_ptr<Gpu> gpu) {
  std::unique_ptr<NcclChannels> result(new NcclChannels(std::move(gpu)));
  std::shared_ptr<const Library> library;
  if (auto loaded = Library::load(); loaded.ok())
    library = loaded.take();
  const Status status = result->gpu->enter([&] {
    const Driver &driver = result->gpu->driver();
    Stream made = nullptr;
    TESSERA_RETURN_IF_ERROR(driver.streamCreate(&made, kStreamNonBlocking));
    result->collectiveStream =
        Owned<Stream>(result->gpu, made, driver.streamDestroy);
    for (comm::Channel *channel : channels.inOrder())
      TESSERA_RETURN_IF_ERROR(result->add(*channel, library));
    return Status::success();
  });
  if (!status.ok())
    return status;
  return result;
}

NcclChannels::~NcclChannels() {
  (void)gpu->enter([&] {
    channels.clear();
    return Status::success();
  });
}

Status NcclChannels::add(comm::Channel &channel,
                         const std::shared_ptr<const Library> &library) {
  std::int32_t count = library ? 1 : 0;
  TESSERA_RETURN_IF_ERROR(channel.run(comm::Collective::allReduce(
      comm::ElementType::i32, comm::Reduction::min, &count, 1)));
  if (count == 0)
    return Status::success();
  auto made = NcclChannel::create(channel, library);
  if (!made.ok())
    return Status::error("{}; TESSERA_LIBNCCL=none goes through the host's "
                         "memory instead",
                         made.message());
  channels.emplace(&channel, made.take());
  return Status::success();
}

NcclChannel *NcclChannels::of(const comm::Channel &channel) const {
  const auto found = channels.find(&channel);
  return found == channels.end() ? nullptr : found->second.get();
}

} // namespace tessera::hal::cuda
