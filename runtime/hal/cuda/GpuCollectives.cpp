#include "runtime/hal/cuda/GpuCollectives.h"

#include <algorithm>
#include <utility>

namespace tessera::hal::cuda {

StatusOr<GpuCollectives> GpuCollectives::prepare(const Commands &code,
                                                 const MeshChannels *channels,
                                                 const NcclChannels *nccl) {
  GpuCollectives result;
  bool stages = false;
  for (const CollectiveCommand &command : code.collectives) {
    if (!channels)
      break; // StagedCollectives refuses
    comm::Channel &channel = channels->channelOf(*command.source);
    comm::nccl::NcclChannel *device = nccl ? nccl->of(channel) : nullptr;
    result.list.push_back(
        {command.source, device, collectiveOf(*command.source, channel)});
    stages |= !device;
    const bool isKnown =
        std::ranges::find(result.watches, device, &Watch::channel) !=
        result.watches.end();
    if (device && !isKnown)
      result.watches.push_back({device, {}});
  }
  result.isDone = std::make_unique<std::atomic<bool>>(true);
  if (!stages && channels)
    return result;
  auto staged = StagedCollectives::prepare(code, channels);
  if (!staged.ok())
    return staged.status();
  result.staged = staged.take();
  return result;
}

Status GpuCollectives::run(std::uint32_t index, Gpu &gpu, Address from,
                           Address to) {
  One &one = list[index];
  if (!one.channel)
    return staged.run(index, gpu, from, to);
  if (one.what.isExchange() && one.what.receiveFrom < 0) {
    TESSERA_RETURN_IF_ERROR(
        gpu.driver().fill(to, 0, one.source->to()->bytes(), gpu.stream()));
    if (one.what.sendTo < 0)
      return Status::success(); // a permutation that leaves this rank out
  }
  one.what.input = reinterpret_cast<const std::byte *>(from);
  one.what.output = reinterpret_cast<std::byte *>(to);
  return one.channel->enqueue(
      one.what, reinterpret_cast<comm::nccl::Stream>(gpu.stream()));
}

Status GpuCollectives::wait(std::uint32_t index, Gpu &gpu, Address to) {
  return list[index].channel ? Status::success() : staged.wait(index, gpu, to);
}

Status GpuCollectives::begin() {
  if (watches.empty())
    return Status::success();
  isDone->store(false);
  for (Watch &watch : watches) {
    auto ticket =
        watch.channel->start(comm::Collective::barrier(), nullptr,
                             [done = isDone.get()] { return done->load(); });
    if (!ticket.ok())
      return ticket.status();
    watch.ticket = *ticket;
  }
  return Status::success();
}

Status GpuCollectives::end() {
  if (watches.empty())
    return Status::success();
  isDone->store(true);
  Status status;
  for (Watch &watch : watches)
    if (watch.ticket)
      if (const Status one =
              watch.channel->wait(*std::exchange(watch.ticket, std::nullopt));
          status.ok())
        status = one;
  return status;
}

void GpuCollectives::settle() {
  staged.settle();
  (void)end();
}

} // namespace tessera::hal::cuda
