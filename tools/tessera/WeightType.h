// --dtype of import and export.
#pragma once
#include "runtime/data/Safetensors.h"
#include <CLI/CLI.hpp>
#include <map>

namespace tessera {

inline CLI::CheckedTransformer weightTypes() {
  return CLI::CheckedTransformer(
      std::map<std::string, SafetensorsType>{{"bf16", SafetensorsType::bf16},
                                             {"f16", SafetensorsType::f16},
                                             {"f32", SafetensorsType::f32}});
}

} // namespace tessera
