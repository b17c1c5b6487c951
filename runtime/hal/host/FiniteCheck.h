// Finds the first NaN or infinity in a tensor.
#pragma once
#include "runtime/artifact/Artifact_generated.h"
#include "runtime/hal/host/Commands.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace tessera::hal {

/// An element that is not finite.
struct BadElement {
  std::uint64_t index;
  bool isNan; // otherwise an infinity
};

/// The first one in `bytes` (aligned to the element size), read as elements of
/// `type`; none for the integer types. A cut last element is not read.
std::optional<BadElement> findNotFinite(std::span<const std::byte> bytes,
                                        artifact::ElementType type);

/// findNotFinite for memory of a device.
using FindNotFinite = std::function<StatusOr<std::optional<BadElement>>(
    const void *address, std::uint64_t bytes, artifact::ElementType type)>;

/// An error that names the first element that is not finite in what `launch`
/// of `code` wrote, as far as Kernel.element_types names the types.
Status checkWritten(const Commands &code, const LaunchCommand &launch,
                    const FindNotFinite &find);

} // namespace tessera::hal
