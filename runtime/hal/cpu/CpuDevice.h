// This machine's processors as a device.
#pragma once
#include "runtime/hal/Device.h"

namespace tessera::hal {

StatusOr<std::unique_ptr<Device>> createCpuDevice(std::string_view which,
                                                  const DeviceOptions &options);

} // namespace tessera::hal
