// Tensor maps of the artifact, as devices make them.
#pragma once
#include "runtime/artifact/Artifact_generated.h"
#include "runtime/device/TensorMap.h"

#include <algorithm>
#include <cstdint>

namespace tessera::hal {

/// The boxes of `map`, from a validated artifact, for a kernel's buffer at
/// address `buffer`.
inline device::TensorBoxes boxesOf(const artifact::TensorMap &map,
                                   std::uint64_t buffer) {
  device::TensorBoxes boxes;
  boxes.element = device::MapElement::bf16; // the validator knows no other
  boxes.rank = map.sizes()->size();
  boxes.base = buffer + map.offset();
  std::copy(map.sizes()->begin(), map.sizes()->end(), boxes.sizes);
  std::copy(map.strides()->begin(), map.strides()->end(), boxes.strides);
  std::copy(map.box()->begin(), map.box()->end(), boxes.box);
  boxes.swizzle = static_cast<device::Swizzle>(map.swizzle());
  return boxes;
}

/// Tensor maps that a launch of `kernel` brings.
inline std::uint32_t mapsOf(const artifact::Kernel &kernel) {
  return kernel.gpu() && kernel.gpu()->maps() ? kernel.gpu()->maps()->size()
                                              : 0;
}

} // namespace tessera::hal
