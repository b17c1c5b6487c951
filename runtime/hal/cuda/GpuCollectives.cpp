#include "runtime/hal/cuda/GpuCollectives.h"

#include <algorithm>
#include <utility>

namespace tessera::hal::cuda {

static Status makeEvents(const std::shared_ptr<Gpu> &gpu, Owned<Event> &begun,
                         Owned<Event> &done) {
  return gpu->enter([&] {
    for (Owned<Event> *event : {&begun, &done}) {
      Event made = nullptr;
      TESSERA_RETURN_IF_ERROR(
          gpu->driver().eventCreate(&made, kEventDisableTiming));
      *event = Owned<Event>(gpu, made, gpu->driver().eventDestroy);
    }
    return Status::success();
  });
}

StatusOr<GpuCollectives>
GpuCollectives::prepare(const Commands &code, const MeshChannels *channels,
                        const NcclChannels *nccl,
                        const std::shared_ptr<Gpu> &gpu) {
  GpuCollectives result;
  bool stages = false;
  if (nccl)
    result.collectiveStream = nccl->stream();
  for (const CollectiveCommand &command : code.collectives) {
    if (!channels)
      break; // StagedCollectives refuses
    comm::Channel &channel = channels->channelOf(*command.source);
    // How many rows go where has to come to the host before they can.
    const bool counts =
        command.source->kind() == artifact::CollectiveKind::exchange_rows;
    comm::nccl::NcclChannel *device =
        nccl && !counts ? nccl->of(channel) : nullptr;
    result.list.push_back(
        {command.source, device, collectiveOf(*command.source, channel)});
    stages |= !device;
    if (device)
      TESSERA_RETURN_IF_ERROR(
          makeEvents(gpu, result.list.back().begun, result.list.back().done));
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

std::string GpuCollectives::describe() const {
  const auto byNccl = std::ranges::count_if(
      list, [](const One &one) { return one.channel != nullptr; });
  if (list.empty())
    return "";
  if (byNccl == 0)
    return "; collectives go through the host's memory";
  return needsHost() ? "; collectives by NCCL, exchanges of experts' rows "
                       "through the host's memory"
                     : "; collectives by NCCL";
}

// NCCL requires one order of all collectives of a communicator, so all are on
// one stream, including those that nothing overlaps with.
Status GpuCollectives::run(std::uint32_t index, Gpu &gpu, Address from,
                           Address to, Address rows) {
  One &one = list[index];
  if (!one.channel)
    return staged.run(index, gpu, from, to, rows);
  const Driver &driver = gpu.driver();
  TESSERA_RETURN_IF_ERROR(driver.eventRecord(one.begun.get(), gpu.stream()));
  TESSERA_RETURN_IF_ERROR(
      driver.streamWait(collectiveStream, one.begun.get(), 0));
  TESSERA_RETURN_IF_ERROR(onStream(one, gpu, from, to));
  TESSERA_RETURN_IF_ERROR(driver.eventRecord(one.done.get(), collectiveStream));
  one.isUnderWay = true;
  return one.source->ticket() != 0 ? Status::success() : wait(index, gpu, to);
}

Status GpuCollectives::onStream(One &one, Gpu &gpu, Address from,
                                Address to) const {
  if (one.what.isExchange() && one.what.receiveFrom < 0) {
    TESSERA_RETURN_IF_ERROR(
        gpu.driver().fill(to, 0, one.source->to()->bytes(), collectiveStream));
    if (one.what.sendTo < 0)
      return Status::success(); // a permutation that leaves this rank out
  }
  one.what.input = reinterpret_cast<const std::byte *>(from);
  one.what.output = reinterpret_cast<std::byte *>(to);
  return one.channel->enqueue(
      one.what, reinterpret_cast<comm::nccl::Stream>(collectiveStream));
}

Status GpuCollectives::wait(std::uint32_t index, Gpu &gpu, Address to) {
  One &one = list[index];
  if (!one.channel)
    return staged.wait(index, gpu, to);
  if (!std::exchange(one.isUnderWay, false))
    return Status::success(); // joined
  return gpu.driver().streamWait(gpu.stream(), one.done.get(), 0);
}

Status GpuCollectives::join(Gpu &gpu) {
  for (One &one : list)
    if (std::exchange(one.isUnderWay, false))
      TESSERA_RETURN_IF_ERROR(
          gpu.driver().streamWait(gpu.stream(), one.done.get(), 0));
  return Status::success();
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

void GpuCollectives::settle(Gpu &gpu) {
  staged.settle();
  if (!watches.empty())
    (void)gpu.driver().streamSynchronize.result(collectiveStream);
  (void)end();
}

} // namespace tessera::hal::cuda
