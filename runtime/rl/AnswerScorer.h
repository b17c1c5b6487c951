// Scores of answers by a reward model.
#pragma once
#include "runtime/data/chat/ChatEncoder.h"
#include "runtime/infer/EmbeddingModel.h"
#include "runtime/rl/PromptFile.h"
#include "runtime/rl/Reward.h"

#include <memory>
#include <span>
#include <vector>

namespace tessera::rl {

/// Not thread-safe.
class AnswerScorer {
public:
  /// `model` gives embeddings of one element. It and `format` must outlive
  /// this. `advice` ends the error of a sequence that is too long.
  AnswerScorer(EmbeddingModel &model, const chat::ChatFormat &format,
               chat::ChatEncoderOptions given, std::string advice)
      : model(model), options(std::move(given)), encoder(format, options),
        advice(std::move(advice)) {
    options.use = chat::ExampleUse::Score;
  }
  AnswerScorer(const AnswerScorer &) = delete;
  AnswerScorer &operator=(const AnswerScorer &) = delete;

  /// The tokens of the example's answers, each after the prompt, as `tessera
  /// data chat` gives them to a reward model that is trained. An error if the
  /// model does not accept their number.
  StatusOr<chat::EncodedExample> encode(const chat::Example &example);
  /// The score of each, that of its last token.
  StatusOr<std::vector<float>>
  score(std::span<const chat::EncodedDocument> answers);

private:
  EmbeddingModel &model;
  chat::ChatEncoderOptions options;
  chat::ChatEncoder encoder;
  const std::string advice;
};

/// An error if the score is not finite.
Status checkScore(float score);

/// An error, with its place, if the reward model cannot read a prompt: its
/// template refuses it, or with an empty completion it has more than `context`
/// tokens.
Status checkPrompts(const chat::ChatFormat &format,
                    chat::ChatEncoderOptions options,
                    std::span<const Prompt> prompts, int64_t context,
                    const std::string &advice);

/// The score of prompt and completion. The completion is the assistant's next
/// message in a conversation; after a text it ends as an answer does that the
/// model was trained with, unless it is truncated.
std::unique_ptr<Reward> rewardModel(std::unique_ptr<AnswerScorer> scorer);

} // namespace tessera::rl
