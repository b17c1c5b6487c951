#include "runtime/rl/AnswerScorer.h"

#include <cmath>

namespace tessera::rl {

StatusOr<chat::EncodedExample>
AnswerScorer::encode(const chat::Example &example) {
  auto answers = encoder.encode(example);
  if (!answers.ok())
    return answers.status();
  const int64_t most = model.shape().context;
  for (const chat::EncodedDocument &each : *answers)
    if (const auto count = int64_t(each.tokens.size()); count > most)
      return Status::error("prompt and answer have {} tokens, and the reward "
                           "model takes {}; shorten them, or raise "
                           "inference.context up to the model's positions",
                           count, most);
  return answers;
}

StatusOr<std::vector<float>>
AnswerScorer::score(std::span<const chat::EncodedDocument> answers) {
  std::vector<std::vector<int32_t>> tokens;
  for (const chat::EncodedDocument &each : answers)
    tokens.emplace_back(each.tokens.begin(), each.tokens.end());
  const std::vector<TokenSpan> spans(tokens.begin(), tokens.end());
  std::vector<float> scores(answers.size());
  TESSERA_RETURN_IF_ERROR(embedAll(model, spans, scores));
  for (float each : scores)
    if (!std::isfinite(each))
      return Status::error("the reward model's score is not finite; check its "
                           "weights");
  return scores;
}

namespace {

class RewardModel final : public Reward {
public:
  explicit RewardModel(std::unique_ptr<AnswerScorer> scorer)
      : scorer(std::move(scorer)) {}

  StatusOr<double> score(const RewardQuestion &question) override {
    auto example = chat::answeredPrompt(
        question.promptLine, question.completion, question.isCut, "the prompt");
    if (!example.ok())
      return example.status();
    auto answer = scorer->encode(*example);
    if (!answer.ok())
      return answer.status();
    auto scores = scorer->score(*answer);
    if (!scores.ok())
      return scores.status();
    return checkedReward(scores->front());
  }

private:
  std::unique_ptr<AnswerScorer> scorer;
};

} // namespace

std::unique_ptr<Reward> rewardModel(std::unique_ptr<AnswerScorer> scorer) {
  return std::make_unique<RewardModel>(std::move(scorer));
}

} // namespace tessera::rl
