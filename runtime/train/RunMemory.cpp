#include "runtime/train/RunMemory.h"
#include "runtime/support/ProcessMemory.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/Metrics.h"

#include <algorithm>

namespace tessera {

std::string RunMemory::describe() const {
  return fmt::format(
      "planned peak memory: {} ({} state, {} arena and io)\n"
      "outside of the plan: {} ({} program and libraries, {} kernels' code, "
      "artifact and data, {} to write checkpoints)",
      byteText(planned), byteText(state),
      byteText(planned - std::min(state, planned)), byteText(outside()),
      byteText(program), byteText(loaded), byteText(checkpoint));
}

StatusOr<RunMemory> measureRunMemory(const TrainModel &model,
                                     std::uint64_t baseBytes) {
  RunMemory memory;
  memory.planned = model.facts().plannedBytes;
  memory.state = model.facts().stateBytes;
  for (const StateTensor &tensor : model.state())
    memory.checkpoint =
        std::max(memory.checkpoint, std::min(tensor.size, kCheckpointPiece));
  memory.checkpoint += model.bytesBesidePiece(memory.checkpoint);
  StatusOr<ProcessMemory> process = readProcessMemory();
  if (!process.ok())
    return process.status();
  StatusOr<std::uint64_t> touched = model.residentPlannedBytes();
  if (!touched.ok())
    return touched.status();
  std::uint64_t beside =
      process->residentBytes - std::min(*touched, process->residentBytes);
  memory.program = std::min(baseBytes, beside);
  memory.loaded = beside - memory.program;
  return memory;
}

std::uint64_t peakResidentBytes() {
  StatusOr<ProcessMemory> memory = readProcessMemory();
  return memory.ok() ? memory->peakResidentBytes : 0;
}

} // namespace tessera
