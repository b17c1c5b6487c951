// What the kernel says this process holds in memory.
#pragma once
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

struct ProcessMemory {
  std::uint64_t residentBytes = 0;     // VmRSS
  std::uint64_t peakResidentBytes = 0; // VmHWM
};

/// Reads /proc/self/status.
StatusOr<ProcessMemory> readProcessMemory();

/// From now on the peak is that of what follows, as far as the kernel allows
/// it: for a process that has compiled before it runs.
void resetPeakResident();

/// How much of an anonymous mapping is in memory, in whole pages: what of it
/// VmRSS counts. `region` starts on a page.
StatusOr<std::uint64_t> residentBytes(std::span<const std::byte> region);

} // namespace tessera
