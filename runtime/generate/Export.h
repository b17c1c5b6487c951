// Exports a run as a Hugging Face directory.
#pragma once
#include "runtime/data/Safetensors.h"
#include "runtime/generate/Generate.h"

#include <optional>

namespace tessera {

/// Writes config.json, model.safetensors under Hugging Face names,
/// tokenizer.json, tokenizer_config.json and generation_config.json into
/// `directory`, which must not exist yet: it appears complete or not at all.
/// Weights are those of the run's newest intact checkpoint, or of the one that
/// `place` names, in their own type or in `type` (F32, BF16, F16). Returns the
/// checkpoint's name; `note` receives one line for each damaged one.
StatusOr<std::string> exportRun(const RunPath &place,
                                const std::string &directory,
                                std::optional<SafetensorsType> type,
                                const TextSink &note);

} // namespace tessera
