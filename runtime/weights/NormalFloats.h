// Quantizes matrices to NF4 with doubly quantized absmax, as bitsandbytes does
// (runtime/support/QuantizedLayout.h), and dequantizes them.
#pragma once
#include "runtime/support/QuantizedLayout.h"

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// absmax of all groups of a matrix, in the order (n, k / 64), and what they
/// are quantized to.
struct NestedAbsmax {
  std::vector<float> absmax;
  float offset = 0;           ///< their mean
  std::vector<float> absmax2; ///< one for 256 of them
  std::vector<uint8_t> codes; ///< of (absmax - offset) / absmax2
};

/// Largest magnitudes of a row's groups. False if a weight is not finite.
bool findAbsmax(std::span<const float> row, std::span<float> absmax);

/// Quantizes `absmax`, which is filled in.
void quantizeAbsmax(NestedAbsmax &nested);

/// Words of a row from column 0 on, one for each 8 columns: the index of the
/// normal float nearest to weight / absmax, the lower of equals; 0 of a group
/// of zeros is exact.
void quantizeNormalFloats(std::span<const float> row,
                          std::span<const float> absmax,
                          std::span<uint32_t> words);

/// The words of a row's scales.
void storeAbsmax(const QuantizedLayout &layout, const NestedAbsmax &nested,
                 int64_t row, std::span<uint32_t> words);

/// The matrix [rows, columns] of `values` and `scales` in micropanels.
std::vector<float> dequantizeNormalFloats(const QuantizedLayout &layout,
                                          std::span<const uint32_t> values,
                                          std::span<const uint32_t> scales);

} // namespace tessera
