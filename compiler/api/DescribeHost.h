// What this machine says of itself.
#pragma once
#include "hardware/Host.h"
#include <string>

namespace tessera {

/// Processor, cores, memory and cache; nothing that has to be measured.
planner::Host describeHost();

/// Bytes of the third cache level, of all instances that the processors 0 to
/// `cores` - 1 have; 0 if `folder`, as /sys/devices/system/cpu, does not say.
double lastLevelCache(const std::string &folder, int64_t cores);

} // namespace tessera
