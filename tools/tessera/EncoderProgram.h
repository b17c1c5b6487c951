// An encoder, compiled and with its weights: for `tessera embed` and `tessera
// serve`.
#pragma once
#include "runtime/infer/EmbedPrograms.h"
#include "runtime/serve/EmbedService.h"
#include "tools/tessera/ModelSource.h"

#include <functional>

namespace tessera {

struct OpenedEncoder {
  std::unique_ptr<SessionModel> model;
  std::unique_ptr<EmbedPrograms> programs; ///< over the model
  tokenizer::Tokenizer tokenizer;
  serve::EmbedFacts facts;
};

/// As openModel. `note` receives a line for each thing that the model's files
/// leave open and that was decided here.
StatusOr<OpenedEncoder>
openEncoder(const ModelSource &source, const ProgramOptions &asked,
            const GenerateOptions &options,
            const std::function<void(std::string_view)> &note);

/// That the model generates no text, and what it is for.
Status encoderGeneratesNothing(const models::ModelSpec &spec);

} // namespace tessera
