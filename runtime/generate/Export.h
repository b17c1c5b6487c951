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
///
/// Of a run that trained an adapter it writes PEFT's adapter_config.json and
/// adapter_model.safetensors, and the tokenizer; with `merge` the whole model,
/// whose weights have their factors added. `merge` is an error for other runs.
StatusOr<std::string> exportRun(const RunPath &place,
                                const std::string &directory,
                                std::optional<SafetensorsType> type, bool merge,
                                const TextSink &note);

} // namespace tessera
