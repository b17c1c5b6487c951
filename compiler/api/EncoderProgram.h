// A compiled encoder with its weights, for `tessera embed` and `tessera serve`.
#pragma once
#include "compiler/api/ModelSource.h"
#include "runtime/infer/EmbedPrograms.h"
#include "runtime/serve/EmbedService.h"
#include "runtime/serve/RankService.h"

#include <functional>

namespace tessera {

/// A program of whole sequences.
struct OpenedEmbedding {
  std::unique_ptr<SessionModel> model;
  std::unique_ptr<EmbedPrograms> programs; ///< over the model
};

/// Like openModel.
StatusOr<OpenedEmbedding> openEmbedding(const ModelSource &source,
                                        const ProgramOptions &asked,
                                        const GenerateOptions &options);

struct OpenedEncoder {
  std::unique_ptr<SessionModel> model;
  std::unique_ptr<EmbedPrograms> programs; ///< over the model
  tokenizer::Tokenizer tokenizer;
  serve::EmbedFacts facts;
};

/// Like openModel. `note` receives a line for each default chosen here because
/// the model's files do not specify it.
StatusOr<OpenedEncoder>
openEncoder(const ModelSource &source, const ProgramOptions &asked,
            const GenerateOptions &options,
            const std::function<void(std::string_view)> &note);

struct OpenedReranker {
  std::unique_ptr<SessionModel> model;
  std::unique_ptr<EmbedPrograms> programs; ///< over the model; scores
  tokenizer::Tokenizer tokenizer;
  serve::RankFacts facts;
};

/// Like openModel, of a cross-encoder or a reward model.
StatusOr<OpenedReranker> openReranker(const ModelSource &source,
                                      const ProgramOptions &asked,
                                      const GenerateOptions &options);

/// The error that an encoder or a reward model generates no text, with what to
/// use instead.
Status generatesNothing(const models::ModelSpec &spec);

} // namespace tessera
