// What a program holds in memory at each of its steps.
#pragma once
#include <cstdint>
#include <vector>

#include "compiler/report/Json.h"
#include "runtime/artifact/Artifact_generated.h"

namespace tessera::report {

/// The step at which most bytes of the arena are live.
struct MemoryPeak {
  std::uint32_t step = 0;
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> alive; ///< numbers of buffers, largest first
};
MemoryPeak peakOf(const artifact::Program &program);

/// State by role, buffers as columns, the peak. `known` is false if the
/// artifact has no table of buffers.
Json memoryJson(const artifact::Share &share, const artifact::Program &program);

} // namespace tessera::report
