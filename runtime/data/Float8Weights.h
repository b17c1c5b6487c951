// Weights of 8-bit floats with scales, as in Hugging Face checkpoints: for X
// [rows, columns] of F8_E4M3 (four bits of exponent with bias 7, three of
// mantissa, no infinity) there are scales,
//
//   X_scale_inv  DeepSeek-V3 and others with quant_method fp8, despite its name
//                a factor (transformers, finegrained_fp8)
//   X_scale      compressed-tensors' float-quantized, fbgemm_fp8, and fp8 as
//                AutoFP8 writes it
//
// of F32, BF16 or F16 and of one of these shapes:
//
//   [] or [1] or [1, 1]   one for all
//   [rows] or [rows, 1]   one a row
//   [⌈rows / m⌉, ⌈columns / n⌉]   one for each block of m × n, as the
//       quantization_config of config.json says; groups of a row are 1 × n
//
// The weight is the product, rounded once, to bf16. Errors: scales of another
// type or shape, and blocks of which config.json says what they cannot be; as
// weights are read, NaNs, and scales with which a weight might not be finite.
#pragma once
#include "runtime/data/Float8Blocks.h"
#include "runtime/data/Safetensors.h"

namespace tessera {

/// What weights are made of.
struct Float8Parts {
  SafetensorsModel::Location weights, scales;
  Float8Blocks blocks;
};

} // namespace tessera
