// The tensors of a GGUF file as the parameters of a model: with Hugging Face
// names and row order, dequantized.
#pragma once
#include "models/ModelSpec.h"
#include "runtime/data/Safetensors.h"
#include "runtime/data/gguf/Gguf.h"

#include <map>

namespace tessera::models {

/// The parameters that were read.
struct GgufWeights {
  std::vector<SafetensorsTensor>
      tensors;                         ///< to be written; point into the file
  std::map<std::string, size_t> types; ///< how many tensors of each
};

/// Reads all parameters of `spec` from `file`, which must outlive the result,
/// as F32, BF16 or F16 (`type`). Reverts the changes of llama.cpp's converters:
/// interleaved rotary pairs in Llama's queries and keys, 1 added to Gemma's
/// norms, transposed GPT-2 matrices, stacked experts. Errors: a parameter that
/// is missing or has another shape, and a tensor that is not a parameter.
StatusOr<GgufWeights> ggufWeights(const GgufFile &file, const ModelSpec &spec,
                                  SafetensorsType type);

} // namespace tessera::models
