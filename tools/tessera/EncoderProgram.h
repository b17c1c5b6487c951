// An encoder of a Hugging Face directory, compiled and with its weights: for
// `tessera embed` and `tessera serve`.
#pragma once
#include "runtime/infer/EmbedPrograms.h"
#include "runtime/serve/EmbedService.h"
#include "tools/tessera/DecoderProgram.h"

#include <functional>

namespace tessera {

struct OpenedEncoder {
  std::unique_ptr<SessionModel> model;
  std::unique_ptr<EmbedPrograms> programs; ///< over the model
  tokenizer::Tokenizer tokenizer;
  serve::EmbedFacts facts;
};

/// Compiles into `options.program` (the cache keeps it for the next time) and
/// opens it. `note` receives a line for each thing that the directory leaves
/// open and that was decided here.
StatusOr<OpenedEncoder>
openEncoder(const std::string &directory, const models::ModelSpec &spec,
            const DecoderSettings &settings, const std::string &recipe,
            const std::vector<std::string> &set, const GenerateOptions &options,
            const std::function<void(std::string_view)> &note);

/// That the model generates no text, and what it is for.
Status encoderGeneratesNothing(const models::ModelSpec &spec);

} // namespace tessera
