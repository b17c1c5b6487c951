// Reader of Hugging Face config.json, for the families of HfFamilyTable.cpp.
#pragma once
#include <string>
#include <string_view>

#include <map>

#include "models/ModelSpec.h"
#include "runtime/support/ModelFiles.h"
#include "runtime/support/QuantizedLayout.h"
#include "runtime/support/Status.h"

namespace tessera::models {

/// Reads the contents of a config.json in the format of transformers 4 or 5.
/// Absent keys have the defaults of the reference's configuration classes;
/// sizes that every checkpoint states (vocabulary, widths, layers, heads) are
/// required.
///
/// Every key is either understood, known not to change the mathematics, or
/// rejected. Errors are one line: `file`, the key, what is wrong, what to do.
StatusOr<ModelSpec> parseHfConfig(std::string_view text,
                                  const std::string &file);

/// The layout of a checkpoint's linear layers if they are integers with scales
/// (runtime/weights/PackedWeights.h).
struct StoredWeights {
  int64_t bits = 0;   ///< 4 or 8
  int64_t group = 0;  ///< 32, 64 or 128 columns
  bool zeros = false; ///< groups have zero points
};

/// The largest group of columns, of 32, 64 and 128, of which each has one scale
/// in a checkpoint whose linear layers are all e4m3.
struct StoredFloats {
  int64_t group = 0;
};

/// A model as found on disk.
struct LoadedConfig {
  std::string file; ///< path of the config.json
  std::string text; ///< its contents
  ModelSpec spec;
  std::optional<StoredWeights> stored;
  std::optional<StoredFloats> floats;
  /// Of a GGUF file, or of experts in mxfp4: the layouts of matrices that are
  /// executed as stored, by parameter, without rows and columns.
  std::map<std::string, QuantizedLayout> layouts;
  /// Whether loaders can dequantize those instead: of a Hugging Face
  /// checkpoint's experts, not of a GGUF file.
  bool isDequantizable = false;
};

/// Reads a config.json in memory; `file` names it in errors.
StatusOr<LoadedConfig> loadedConfig(std::string text, const std::string &file);

/// The config.json of a model.
StatusOr<LoadedConfig> loadedConfig(const ModelFiles &files);

/// Reads `path`: a config.json or a directory that holds one.
StatusOr<LoadedConfig> loadHfConfig(const std::string &path);

/// A config.json without `quantization_config`, of a model whose weights are
/// not quantized any more.
std::string withoutQuantization(const std::string &text);

} // namespace tessera::models
