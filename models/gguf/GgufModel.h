// A GGUF file as a model that inference reads, without a copy of it.
#pragma once
#include "runtime/data/WeightFiles.h"
#include "runtime/data/gguf/Gguf.h"
#include "runtime/support/ModelFiles.h"

#include <string>

namespace tessera::models {

struct GgufModel {
  ModelFiles files;    ///< in memory: config.json, tokenizer.json and others
  WeightFiles weights; ///< keep the file open
  /// Which quantized weights are dequantized, for the user; empty: none.
  std::string note;
};

/// Whether `path` is a file that begins as GGUF files do, or has their
/// extension.
bool isGguf(const std::string &path);

/// Opens the file. The `dtype` of its config.json is that of most numbers in
/// matrices, bfloat16 if they are quantized; its `quantization_config` lists
/// the matrices that programs read in the file's blocks (GgufLayouts.h). Others
/// are dequantized as they are loaded.
StatusOr<GgufModel> openGguf(const std::string &path);
/// The same of a file that is open.
StatusOr<GgufModel> ggufModel(std::shared_ptr<const GgufFile> file);

} // namespace tessera::models
