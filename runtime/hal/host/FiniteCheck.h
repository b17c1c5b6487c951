// Finds the first NaN or infinity in a tensor.
#pragma once
#include "runtime/artifact/Artifact_generated.h"

#include <cstddef>
#include <cstdint>
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

} // namespace tessera::hal
