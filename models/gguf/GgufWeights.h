// The tensors of a GGUF file as the parameters of a model: under their Hugging
// Face names, in their order of rows, unpacked.
#pragma once
#include "models/ModelSpec.h"
#include "runtime/data/Safetensors.h"
#include "runtime/data/gguf/Gguf.h"

#include <map>

namespace tessera::models {

/// What was read.
struct GgufWeights {
  std::vector<SafetensorsTensor>
      tensors;                         ///< to be written; point into the file
  std::map<std::string, size_t> types; ///< how many tensors of each
};

/// All parameters of `spec` out of `file`, which must outlive the result, as
/// F32, BF16 or F16 (`type`). Undone is what llama.cpp's converters do to them:
/// rows of Llama's queries and keys are in the order of interleaved rotary
/// pairs, Gemma's norms have 1 added, GPT-2's matrices are transposed, experts
/// are stacked. An error names a parameter that is missing or has another
/// shape, and a tensor that is none.
StatusOr<GgufWeights> ggufWeights(const GgufFile &file, const ModelSpec &spec,
                                  SafetensorsType type);

} // namespace tessera::models
