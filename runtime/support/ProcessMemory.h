// What the kernel says this process holds in memory.
#pragma once
#include "runtime/support/Status.h"

#include <cstdint>

namespace tessera {

struct ProcessMemory {
  std::uint64_t residentBytes = 0;     // VmRSS
  std::uint64_t peakResidentBytes = 0; // VmHWM
};

/// Reads /proc/self/status.
StatusOr<ProcessMemory> readProcessMemory();

} // namespace tessera
