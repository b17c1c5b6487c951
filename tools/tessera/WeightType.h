// --dtype of import and export.
#pragma once
#include "runtime/data/Safetensors.h"
#include <CLI/CLI.hpp>
#include <string>
#include <utility>

namespace tessera {

/// Maps names to numbers, which CLI11 reads as values of the enumeration.
inline CLI::Validator weightTypes() {
  return CLI::Validator(
      [](std::string &text) {
        for (auto [name, type] : {std::pair("bf16", SafetensorsType::bf16),
                                  {"f16", SafetensorsType::f16},
                                  {"f32", SafetensorsType::f32}})
          if (text == name) {
            text = std::to_string(int(type));
            return std::string();
          }
        return "must be bf16, f16 or f32, got '" + text + "'";
      },
      "{bf16,f16,f32}");
}

} // namespace tessera
