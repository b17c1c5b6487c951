// An NVIDIA GPU as a device.
#pragma once
#include "runtime/hal/Device.h"

namespace tessera::hal {

/// An error unless there is a GPU of that number; nothing means 0.
Status checkCudaDevice(std::string_view which);

/// The GPU of that number, in the driver's order; nothing means 0. Steps reach
/// it as DeviceOptions.cudaMode says.
StatusOr<std::unique_ptr<Device>>
createCudaDevice(std::string_view which, const DeviceOptions &options);

} // namespace tessera::hal
