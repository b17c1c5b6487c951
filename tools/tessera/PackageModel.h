// What `tessera compile DIR --mode infer` makes of a directory with weights.
#pragma once
#include "compiler/Driver.h"
#include "runtime/support/Status.h"
#include "tools/tessera/ModelSource.h"

#include <optional>
#include <string>

namespace tessera {

/// The directory that `spec` is, or is the hub's name of, if it has weights in
/// safetensors.
StatusOr<std::optional<ModelSource>> findWeights(const std::string &spec);

/// Compiles the programs of `request` and writes its output with them, with the
/// weights, and with the files that texts and chats need
/// (runtime/generate/PackagedModel.h). An output that cannot be written, files
/// that are missing and checkpoints that cannot be read are errors before
/// anything is compiled.
StatusOr<CompileSummary> packageModel(const CompileRequest &request,
                                   const ModelSource &source);

} // namespace tessera
