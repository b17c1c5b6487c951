// What both uses of a GGUF file need: conversion to a directory, and inference
// on the file itself.
#pragma once
#include "models/gguf/GgufTokenizer.h"
#include "models/gguf/GgufWeights.h"
#include "runtime/support/ModelFiles.h"

#include <nlohmann/json.hpp>

namespace tessera::models {

struct GgufParts {
  nlohmann::ordered_json config; ///< config.json, without `dtype`
  ModelSpec spec;                ///< of that config.json
  GgufTokenizer tokenizer;
  std::string generation; ///< generation_config.json
  GgufWeights weights;    ///< point into the file

  /// All files but the weights, with this `dtype` ("bfloat16") in config.json.
  ModelFiles::Contents files(std::string_view dtype);
};

/// Reads everything in `file`, which must outlive the result. config.json and
/// the tokenizer are read back as others will. Errors name the file and the
/// key or tensor; among them: a part of a model that is split over files.
StatusOr<GgufParts> readGguf(const GgufFile &file);

} // namespace tessera::models
