// A GGUF file as a Hugging Face directory.
#pragma once
#include "runtime/data/Safetensors.h"

#include <string>

namespace tessera::models {

/// Writes config.json, model.safetensors with elements of `type` (F32, F16 or
/// BF16), tokenizer.json, tokenizer_config.json, generation_config.json and,
/// where the file has a template, chat_template.jinja into `directory`, which
/// must not exist. It is created completely or not at all. Returns one line
/// that describes what was read. Memory: one row of a tensor, of GPT-2 one
/// tensor; the file is mapped.
StatusOr<std::string> importGguf(const std::string &path,
                                 const std::string &directory,
                                 SafetensorsType type);

} // namespace tessera::models
