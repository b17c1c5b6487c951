// The hyperparameters of a GGUF file as a Hugging Face config.json.
#pragma once
#include "models/ModelSpec.h"
#include "models/gguf/GgufKeys.h"

#include <nlohmann/json.hpp>

namespace tessera::models {

/// The config.json without `dtype`, for general.architecture llama (Llama,
/// Mistral, Mixtral), qwen2, qwen3, gemma, gemma2, gemma3, phi3 and gpt2. Every
/// key of the architecture is understood or rejected by name.
StatusOr<nlohmann::ordered_json> ggufConfig(GgufKeys &keys);

/// Tensors that hold hyperparameters, not weights.
bool isConfigTensor(std::string_view name);

} // namespace tessera::models
