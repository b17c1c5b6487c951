// An NVIDIA GPU as a device.
#pragma once
#include "runtime/hal/Device.h"

namespace tessera::hal {

/// The GPU of that number, in the driver's order; nothing means 0. Steps reach
/// it as DeviceOptions.cudaMode says.
StatusOr<std::unique_ptr<Device>>
createCudaDevice(std::string_view which, const DeviceOptions &options);

} // namespace tessera::hal
