// Writes the packaged model of `tessera compile DIR --mode infer`.
#pragma once
#include "compiler/Driver.h"
#include "compiler/api/ModelSource.h"
#include "runtime/support/Status.h"

#include <optional>
#include <string>

namespace tessera {

/// The model directory that `spec` names (a path, or a name in the Hugging Face
/// cache), if it has weights in safetensors.
StatusOr<std::optional<ModelSource>> findWeights(const std::string &spec);

/// Compiles the programs of `request` and writes them to its output, with the
/// weights and the files that generation and chats need
/// (runtime/generate/PackagedModel.h). An output that cannot be written,
/// missing files and unreadable checkpoints are reported before compilation.
StatusOr<CompileSummary> packageModel(const CompileRequest &request,
                                      const ModelSource &source);

} // namespace tessera
