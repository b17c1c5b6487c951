// The tensors of a GGUF file as the parameters of a model: with Hugging Face
// names and row order.
#pragma once
#include "models/ModelSpec.h"
#include "runtime/data/gguf/GgufRows.h"

#include <map>

namespace tessera::models {

/// A parameter, or one matrix of a stack, by its Hugging Face name.
struct GgufParameter {
  std::string name;
  std::string parameter;       ///< of a stack with '*' for the number
  std::vector<uint64_t> shape; ///< in the checkpoint
  GgufRows rows;               ///< point into the file
};

/// The parameters that were found.
struct GgufWeights {
  std::vector<GgufParameter> parameters;
  std::map<std::string, size_t> types; ///< how many tensors of each
};

/// Finds all parameters of `spec` in `file`, which must outlive the result.
/// Reverts the changes of llama.cpp's converters: interleaved rotary pairs in
/// Llama's queries and keys, 1 added to Gemma's norms, transposed GPT-2
/// matrices, stacked experts. Errors: a parameter that is missing or has
/// another shape, and a tensor that is not a parameter.
StatusOr<GgufWeights> ggufWeights(const GgufFile &file, const ModelSpec &spec);

/// The parameter to be written, dequantized and rounded to F32, BF16 or F16.
SafetensorsTensor ggufTensor(const GgufParameter &parameter,
                             SafetensorsType type);

} // namespace tessera::models
