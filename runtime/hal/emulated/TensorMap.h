// Tensor maps of the emulated GPU.
#pragma once
#include "runtime/device/TensorMap.h"
#include "runtime/support/Status.h"

#include <cstddef>

namespace tessera::emulated {

std::size_t bytesOf(device::MapElement element);

/// Fills `map`, as cuTensorMapEncodeTiled does for a GPU. Refuses what the
/// driver refuses (addresses and strides that are not multiples of 16, sizes
/// and boxes out of range) and two things more: strides of zero, and boxes that
/// do not fill a swizzle's span, whose place in shared memory is not
/// documented.
Status makeTensorMap(const device::TensorBoxes &boxes, device::TensorMap &map);

/// What makeTensorMap was given; an error where `map` is none of its own.
StatusOr<device::TensorBoxes> readTensorMap(const device::TensorMap &map);

} // namespace tessera::emulated
