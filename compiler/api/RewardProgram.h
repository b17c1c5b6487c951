// A compiled reward model with its weights: what gives a score to a sequence.
#pragma once
#include "compiler/api/ModelSource.h"
#include "runtime/infer/EmbedPrograms.h"

#include <memory>

namespace tessera {

struct OpenedRewardModel {
  std::unique_ptr<SessionModel> model;
  std::unique_ptr<EmbedPrograms> programs; ///< over the model
  tokenizer::Tokenizer tokenizer;
};

/// Like openModel, of a ForSequenceClassification with one label. embedAll()
/// then writes a float for each sequence: the score of its last token, which
/// should be what ended the answers of training, such as the end-of-turn token.
StatusOr<OpenedRewardModel> openRewardModel(const ModelSource &source,
                                            const ProgramOptions &asked,
                                            const GenerateOptions &options);

} // namespace tessera
