// How fast plain loops read, write and copy memory that no cache holds.
#pragma once
#include "hardware/Host.h"

namespace tessera::bench {

struct MemoryTime {
  planner::MemoryRate rate;
  double spread = 0; ///< distance of the quartiles over the median, at worst
};

/// On `threads` threads, which share buffers of half a GiB; the median of
/// seven passes.
MemoryTime benchMemory(unsigned threads);

} // namespace tessera::bench
