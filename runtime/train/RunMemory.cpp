#include "runtime/train/RunMemory.h"
#include "runtime/support/ProcessMemory.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/Metrics.h"

#include <algorithm>
#include <array>

namespace tessera {

std::string RunMemory::describe() const {
  std::string more;
  std::uint64_t arena = planned - std::min(state, planned);
  for (const auto &[what, bytes] : others) {
    more += fmt::format(", {} {}", byteText(bytes), what);
    arena -= std::min(bytes, arena);
  }
  return fmt::format(
      "planned peak memory: {} ({} state, {} arena and io{})\n"
      "outside of the plan: {} ({} program and libraries, {} kernels' code, "
      "artifact and data, {} to write checkpoints)",
      byteText(planned), byteText(state), byteText(arena), more,
      byteText(outside()), byteText(program), byteText(loaded),
      byteText(checkpoint));
}

Status fillMessageBuffers(TrainModel &model) {
  // From each rank to each; large enough for several of what a layer keeps
  // for messages on their way, small enough for any number of ranks.
  constexpr std::uint64_t kWords = std::uint64_t(1) << 17, kRounds = 2;
  const std::vector<std::uint64_t> one(1);
  StatusOr<std::vector<std::uint64_t>> ranks = model.fromEveryRank(one);
  if (!ranks.ok() || ranks->size() <= 1)
    return ranks.status();
  const std::vector<std::uint64_t> words(
      std::max<std::uint64_t>(kWords / ranks->size(), 1));
  for (std::uint64_t round = 0; round < kRounds; ++round)
    TESSERA_RETURN_IF_ERROR(model.fromEveryRank(words).status());
  return Status::success();
}

StatusOr<RunMemory> measureRunMemory(const TrainModel &model,
                                     std::span<const OtherModel> others,
                                     std::uint64_t baseBytes) {
  RunMemory memory;
  memory.planned = model.facts().plannedBytes;
  memory.state = model.facts().stateBytes;
  for (const StateTensor &tensor : model.state())
    memory.checkpoint =
        std::max(memory.checkpoint, std::min(tensor.size, kCheckpointPiece));
  memory.checkpoint += model.bytesDuringPiece(memory.checkpoint);
  StatusOr<ProcessMemory> process = readProcessMemory();
  if (!process.ok())
    return process.status();
  StatusOr<std::uint64_t> touched = model.residentPlannedBytes();
  if (!touched.ok())
    return touched.status();
  for (const auto &[what, other] : others) {
    memory.others.emplace_back(what, other->facts().plannedBytes);
    memory.planned += other->facts().plannedBytes;
    StatusOr<std::uint64_t> more = other->residentPlannedBytes();
    if (!more.ok())
      return more.status();
    *touched += *more;
  }
  std::uint64_t outside =
      process->residentBytes - std::min(*touched, process->residentBytes);
  memory.program = std::min(baseBytes, outside);
  memory.loaded = outside - memory.program;
  return memory;
}

StatusOr<std::vector<MeasuredMemory>> gatherMemory(TrainModel &model,
                                                   const RunMemory &own) {
  const std::array numbers = {own.planned, own.outside(), peakResidentBytes()};
  StatusOr<std::vector<std::uint64_t>> all = model.fromEveryRank(numbers);
  if (!all.ok())
    return all.status();
  std::vector<MeasuredMemory> ranks;
  for (std::size_t i = 0; i + numbers.size() <= all->size();
       i += numbers.size())
    ranks.push_back({(*all)[i], (*all)[i + 1], (*all)[i + 2]});
  return ranks;
}

std::string describeRanks(std::span<const MeasuredMemory> ranks, bool isOver) {
  auto need = [&](const MeasuredMemory &rank) {
    return isOver ? rank.peak : rank.planned + rank.outside;
  };
  auto most =
      std::max_element(ranks.begin(), ranks.end(),
                       [&](const MeasuredMemory &x, const MeasuredMemory &y) {
                         return need(x) < need(y);
                       });
  return fmt::format("of {} ranks, rank {} {} most: {}; {} planned and {} "
                     "outside of the plan",
                     ranks.size(), most - ranks.begin(),
                     isOver ? "held" : "will hold", byteText(need(*most)),
                     byteText(most->planned), byteText(most->outside));
}

std::string printMemory(std::span<const MeasuredMemory> ranks) {
  std::vector<std::string> parts;
  for (const MeasuredMemory &rank : ranks)
    parts.push_back(fmt::format(R"({{"planned":{},"outside":{},"peak":{}}})",
                                rank.planned, rank.outside, rank.peak));
  return fmt::format("{{\"ranks\":[{}]}}\n", fmt::join(parts, ","));
}

std::uint64_t peakResidentBytes() {
  StatusOr<ProcessMemory> memory = readProcessMemory();
  return memory.ok() ? memory->peakResidentBytes : 0;
}

} // namespace tessera
