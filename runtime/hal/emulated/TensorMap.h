// Tensor maps of the emulated GPU.
#pragma once
#include "runtime/device/TensorMap.h"
#include "runtime/support/Status.h"

#include <cstddef>

namespace tessera::emulated {

std::size_t bytesOf(device::MapElement element);

/// Fills `map`, as cuTensorMapEncodeTiled does for a GPU. Rejects what the
/// driver rejects (addresses and strides that are not multiples of 16, sizes
/// and boxes out of range) and also strides of zero, and boxes that do not fill
/// a swizzle's span, whose layout in shared memory is not documented.
Status makeTensorMap(const device::TensorBoxes &boxes, device::TensorMap &map);

/// The argument of makeTensorMap; an error if it did not make `map`.
StatusOr<device::TensorBoxes> readTensorMap(const device::TensorMap &map);

} // namespace tessera::emulated
