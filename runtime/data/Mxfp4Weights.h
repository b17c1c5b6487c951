// MXFP4 weights of safetensors files, which loading dequantizes to bf16 unless
// the program multiplies them as they are.
#pragma once
#include "runtime/data/Safetensors.h"

namespace tessera {

/// A stack [experts, in, out], of the shapes that Mxfp4Weights.cpp has checked:
/// blocks U8 [experts, out, in / 32, 16] and scales U8 [experts, out, in / 32].
struct Mxfp4Parts {
  SafetensorsModel::Location blocks, scales;
};

/// An error names the first exponent with which a weight might not be finite;
/// `first`: the number of scales[0] in the tensor.
Status checkMxfp4Exponents(const SafetensorsModel::Location &from,
                           uint64_t first, std::span<const uint8_t> scales);

} // namespace tessera
