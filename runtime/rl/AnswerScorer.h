// Scores of answers by a reward model.
#pragma once
#include "runtime/data/chat/ChatEncoder.h"
#include "runtime/infer/EmbeddingModel.h"
#include "runtime/rl/Reward.h"

#include <memory>
#include <span>
#include <vector>

namespace tessera::rl {

/// Not thread-safe.
class AnswerScorer {
public:
  /// `model` gives embeddings of one element. It and `format` must outlive
  /// this.
  AnswerScorer(EmbeddingModel &model, const chat::ChatFormat &format,
               chat::ChatEncoderOptions given)
      : model(model), options(std::move(given)), encoder(format, options) {
    options.mustLearn = false; // it is only read
  }
  AnswerScorer(const AnswerScorer &) = delete;
  AnswerScorer &operator=(const AnswerScorer &) = delete;

  /// The tokens of the example's answers, each after the prompt, as `tessera
  /// data chat` gives them to a reward model that is trained. An error if the
  /// model does not accept their number.
  StatusOr<chat::EncodedExample> encode(const chat::Example &example);
  /// The score of each, that of its last token; an error if one is not finite.
  StatusOr<std::vector<float>>
  score(std::span<const chat::EncodedDocument> answers);

private:
  EmbeddingModel &model;
  chat::ChatEncoderOptions options;
  chat::ChatEncoder encoder;
};

/// The score of prompt and completion. The completion is the assistant's next
/// message in a conversation; after a text it ends as an answer does that the
/// model was trained with, unless it is cut.
std::unique_ptr<Reward> rewardModel(std::unique_ptr<AnswerScorer> scorer);

} // namespace tessera::rl
