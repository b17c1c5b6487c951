// A device that holds nothing and runs nothing, but checks every plan it is
// given: what would run, and in which bytes, without the memory to run it.
#pragma once
#include "runtime/hal/Device.h"

namespace tessera::hal {

/// Takes the artifact's code for the kind of device `which`, or for its first
/// kind if that is empty. Buffers have sizes but no memory (they read as
/// zeros); recording a program is checkPlan; running it does nothing.
StatusOr<std::unique_ptr<Device>>
createNullDevice(std::string_view which, const DeviceOptions &options);

} // namespace tessera::hal
