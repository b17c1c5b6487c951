// The emulated GPU as a device: generated CUDA kernels, executed on the host.
#pragma once
#include "runtime/hal/Device.h"

namespace tessera::hal {

/// Runs the code that the artifact has for CUDA, or for the architecture
/// `which` ("sm_80") if that is not empty, as the compiler built it for the
/// host. Slow and strict (BlockMachine.h): for finding what is wrong with a
/// kernel, and for machines without a GPU. Before every run the arena is filled
/// with bytes that read as NaN. Command lists allocate memory when they run.
StatusOr<std::unique_ptr<Device>>
createEmulatedDevice(std::string_view which, const DeviceOptions &options);

} // namespace tessera::hal
