// Matrices of a model's state, quantized or in micropanels, as floats.
#pragma once
#include "runtime/support/QuantizedLayout.h"

#include <cstddef>
#include <span>
#include <vector>

namespace tessera {

/// The matrix [rows, columns] that `values` and `scales` have in the layout,
/// which kernels multiply by. `scales` are empty for 16 bits. Spans have the
/// layout's sizes. With `transposed`, [columns, rows].
std::vector<float> dequantizeMatrix(const QuantizedLayout &layout,
                                    std::span<const std::byte> values,
                                    std::span<const std::byte> scales,
                                    bool transposed = false);

} // namespace tessera
