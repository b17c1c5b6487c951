#include "runtime/rl/AnswerScorer.h"

#include <cmath>

namespace tessera::rl {

static Status checkLengths(const chat::EncodedExample &answers, int64_t most,
                           const std::string &advice) {
  for (const chat::EncodedDocument &each : answers)
    if (const auto count = int64_t(each.tokens.size()); count > most)
      return Status::error("prompt and answer have {} tokens, and the reward "
                           "model takes {}; {}",
                           count, most, advice);
    else if (count == 0)
      return Status::error("prompt and answer have no token");
  return Status::success();
}

StatusOr<chat::EncodedExample>
AnswerScorer::encode(const chat::Example &example) {
  auto answers = encoder.encode(example);
  if (!answers.ok())
    return answers.status();
  TESSERA_RETURN_IF_ERROR(
      checkLengths(*answers, model.shape().context, advice));
  return answers;
}

Status checkPrompts(const chat::ChatFormat &format,
                    chat::ChatEncoderOptions options,
                    std::span<const Prompt> prompts, int64_t context,
                    const std::string &advice) {
  options.use = chat::ExampleUse::Score;
  chat::ChatEncoder encoder(format, options);
  for (const Prompt &prompt : prompts) {
    auto example =
        chat::answeredPrompt(prompt.line, "", /*isCut=*/false, prompt.where);
    if (!example.ok())
      return example.status();
    auto encoded = encoder.encode(*example);
    const Status status = encoded.ok() ? checkLengths(*encoded, context, advice)
                                       : encoded.status();
    if (!status.ok())
      return Status::error("{}: {}", prompt.where, status.message());
  }
  return Status::success();
}

StatusOr<std::vector<float>>
AnswerScorer::score(std::span<const chat::EncodedDocument> answers) {
  std::vector<std::vector<int32_t>> tokens;
  for (const chat::EncodedDocument &each : answers)
    tokens.emplace_back(each.tokens.begin(), each.tokens.end());
  const std::vector<TokenSequence> spans(tokens.begin(), tokens.end());
  std::vector<float> scores(answers.size());
  TESSERA_RETURN_IF_ERROR(embedAll(model, spans, scores));
  return scores;
}

Status checkScore(float score) {
  return std::isfinite(score)
             ? Status::success()
             : Status::error("the reward model's score is not finite; check "
                             "its weights");
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
    TESSERA_RETURN_IF_ERROR(checkScore(scores->front()));
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
