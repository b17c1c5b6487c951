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
  result.assignPlaces(code);
  return result;
}

// A collective and its wait are in the same list, so one walk that enters each
// loop once sees all that are in flight at the same time.
void StagedCollectives::assignPlaces(const Commands &code) {
  constexpr std::uint64_t kAlignment = 64;
  slots.resize(code.collectives.size());
  std::vector<std::uint64_t> sizes;
  std::vector<std::size_t> free;
  for (const Command &command : code.commands) {
    if (command.kind == Command::Kind::wait)
      free.push_back(slots[command.index].slot);
    if (command.kind != Command::Kind::collective)
      continue;
    const artifact::Collective &source =
        *code.collectives[command.index].source;
    Place &place = slots[command.index];
    place.fromBytes = source.from()->bytes();
    place.toBytes = source.to()->bytes();
    place.rowsBytes = source.rows() ? source.rows()->bytes() : 0;
    place.isStarted = source.ticket() != 0;
    const bool isInPlace =
        source.kind() == artifact::CollectiveKind::all_reduce;
    place.toOffset = isInPlace ? 0
                               : (place.fromBytes + kAlignment - 1) /
                                     kAlignment * kAlignment;
    if (free.empty()) {
      free.push_back(sizes.size());
      sizes.push_back(0);
    }
    // The largest has to grow least.
    const auto best = std::max_element(
        free.begin(), free.end(),
        [&](std::size_t a, std::size_t b) { return sizes[a] < sizes[b]; });
    place.slot = *best;
    sizes[place.slot] =
        std::max(sizes[place.slot], place.toOffset + place.toBytes);
    if (place.isStarted)
      free.erase(best);
  }
  for (const std::uint64_t bytes : sizes)
    slots.emplace_back(bytes);
}

Status StagedCollectives::bringBack(const Place &place, Gpu &gpu, Address to) {
  return gpu.upload(
      to, std::span(slots[place.slot]).subspan(place.toOffset, place.toBytes));
}

Status StagedCollectives::run(std::uint32_t index, Gpu &gpu, Address from,
                              Address to, Address counts) {
  const Place &place = slots[index];
  std::byte *staged = slots[place.slot].data();
  TESSERA_RETURN_IF_ERROR(gpu.download({staged, place.fromBytes}, from));
  rows.resize(place.rowsBytes);
  if (!rows.empty())
    TESSERA_RETURN_IF_ERROR(gpu.download(rows, counts));
  TESSERA_RETURN_IF_ERROR(
      host.run(index, staged, staged + place.toOffset, rows.data()));
  return place.isStarted ? Status::success() : bringBack(place, gpu, to);
}

Status StagedCollectives::wait(std::uint32_t index, Gpu &gpu, Address to) {
  TESSERA_RETURN_IF_ERROR(host.wait(index));
  return bringBack(slots[index], gpu, to);
}

} // namespace tessera::hal::cuda
