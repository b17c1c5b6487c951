#include "runtime/hal/cuda/StagedCollectives.h"

#include <algorithm>

namespace tessera::hal::cuda {

StatusOr<StagedCollectives>
StagedCollectives::prepare(const Commands &code, const MeshChannels *channels) {
  StagedCollectives result;
  auto host = HostCollectives::prepare(code, channels);
  if (!host.ok())
    return host.status();
  result.host = host.take();
  result.assignSlots(code);
  return result;
}

// A collective and its wait are in the same list, so one walk that enters each
// loop once sees all that are in flight at the same time.
void StagedCollectives::assignSlots(const Commands &code) {
  constexpr std::uint64_t kAlignment = 64;
  stagings.resize(code.collectives.size());
  std::vector<std::uint64_t> sizes;
  std::vector<std::size_t> free;
  for (const Command &command : code.commands) {
    if (command.kind == Command::Kind::wait)
      free.push_back(stagings[command.index].slot);
    if (command.kind != Command::Kind::collective)
      continue;
    const artifact::Collective &source =
        *code.collectives[command.index].source;
    Staging &staging = stagings[command.index];
    staging.fromBytes = source.from()->bytes();
    staging.toBytes = source.to()->bytes();
    staging.rowsBytes = source.rows() ? source.rows()->bytes() : 0;
    staging.isStarted = source.ticket() != 0;
    const bool isInPlace =
        source.kind() == artifact::CollectiveKind::all_reduce;
    staging.toOffset = isInPlace ? 0
                                 : (staging.fromBytes + kAlignment - 1) /
                                       kAlignment * kAlignment;
    if (free.empty()) {
      free.push_back(sizes.size());
      sizes.push_back(0);
    }
    // The largest has to grow least.
    const auto best = std::max_element(
        free.begin(), free.end(),
        [&](std::size_t a, std::size_t b) { return sizes[a] < sizes[b]; });
    staging.slot = *best;
    sizes[staging.slot] =
        std::max(sizes[staging.slot], staging.toOffset + staging.toBytes);
    if (staging.isStarted)
      free.erase(best);
  }
  for (const std::uint64_t bytes : sizes)
    slots.emplace_back(bytes);
}

Status StagedCollectives::bringBack(const Staging &staging, Gpu &gpu,
                                    Address to) {
  return gpu.upload(to, std::span(slots[staging.slot])
                            .subspan(staging.toOffset, staging.toBytes));
}

Status StagedCollectives::run(std::uint32_t index, Gpu &gpu, Address from,
                              Address to, Address counts) {
  const Staging &staging = stagings[index];
  std::byte *staged = slots[staging.slot].data();
  TESSERA_RETURN_IF_ERROR(gpu.download({staged, staging.fromBytes}, from));
  rows.resize(staging.rowsBytes);
  if (!rows.empty())
    TESSERA_RETURN_IF_ERROR(gpu.download(rows, counts));
  TESSERA_RETURN_IF_ERROR(
      host.run(index, staged, staged + staging.toOffset, rows.data()));
  return staging.isStarted ? Status::success() : bringBack(staging, gpu, to);
}

Status StagedCollectives::wait(std::uint32_t index, Gpu &gpu, Address to) {
  TESSERA_RETURN_IF_ERROR(host.wait(index));
  return bringBack(stagings[index], gpu, to);
}

} // namespace tessera::hal::cuda
