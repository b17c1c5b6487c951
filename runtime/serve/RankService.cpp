#include "runtime/serve/RankService.h"
#include "runtime/serve/SequenceService.h"
#include "runtime/serve/StoredAnswers.h"

#include <algorithm>
#include <cmath>

namespace tessera::serve {

StatusOr<tokenizer::TextPair>
PairScorer::tokens(std::span<const uint32_t> first, std::string_view second,
                   std::optional<int64_t> truncate, std::string_view advice) {
  const int64_t most =
      truncate && *truncate > 0 ? std::min(*truncate, context) : context;
  auto pair = encoder.framePair(first, encoder.encode(second),
                                truncate ? size_t(most) : SIZE_MAX);
  if (!pair.ok())
    return pair.status();
  if (pair->ids.empty())
    return Status::error("the pair has no tokens");
  if (int64_t(pair->ids.size()) > context)
    return Status::error("the pair has {} tokens, and the model accepts "
                         "{}; {}",
                         pair->ids.size(), context, advice);
  return pair;
}

StatusOr<double> PairScorer::relevance(float score) const {
  if (!std::isfinite(score))
    return Status::error("a score is not finite; check the weights");
  return facts.isLogistic ? 1 / (1 + std::exp(-double(score))) : double(score);
}

namespace {

class RankService final : public SequenceService {
public:
  RankService(EmbedEngine &engine, const tokenizer::Tokenizer &tokenizer,
              RankFacts facts, ServiceOptions options)
      : SequenceService(ModelKind::ranks, engine, tokenizer,
                        std::move(options)),
        scorer(tokenizer, engine.shape().context, facts) {}

private:
  void post(const HttpRequest &request, Endpoint endpoint,
            const Reply &reply) override;
  void rank(const HttpRequest &request, Endpoint endpoint, const Reply &reply);
  /// The tokens of all pairs, or the error of one.
  std::variant<EmbedRequest, ApiError> makeWork(const RankingRequest &request,
                                                std::string_view field);
  Answer answer(Endpoint endpoint, const RankingRequest &request,
                const EmbedResult &result) const;

  PairScorer scorer;
};

void RankService::post(const HttpRequest &http, Endpoint endpoint,
                       const Reply &reply) {
  if (isRanking(endpoint))
    return rank(http, endpoint, reply);
  tokenize(http, endpoint, reply);
}

std::variant<EmbedRequest, ApiError>
RankService::makeWork(const RankingRequest &request, std::string_view field) {
  EmbedRequest work;
  std::vector<uint32_t> first; // a query is encoded once
  for (std::size_t i = 0; i < request.seconds.size(); ++i) {
    if (i < request.firsts.size())
      first = scorer.encode(request.firsts[i]);
    auto pair = scorer.tokens(first, request.seconds[i], request.truncate,
                              "shorten it, or set truncate_prompt_tokens");
    if (!pair.ok())
      return invalid(field, fmt::format("{} {}: {}", field, i, pair.message()));
    work.sequences.emplace_back(pair->ids.begin(), pair->ids.end());
    work.secondBegins.push_back(int64_t(pair->secondBegins));
  }
  return work;
}

void RankService::rank(const HttpRequest &http, Endpoint endpoint,
                       const Reply &reply) {
  auto parsed = parseRankingRequest(http.body, endpoint);
  if (const auto *error = std::get_if<ApiError>(&parsed))
    return sendError(reply, *error);
  auto &request = std::get<RankingRequest>(parsed);
  if (!request.model.empty() && !isServed(request.model))
    return sendError(reply, otherModel());
  const std::string_view field = inputField(endpoint);
  auto work = makeWork(request, field);
  if (const auto *error = std::get_if<ApiError>(&work))
    return sendError(reply, *error);
  auto call = std::make_shared<Call>(
      http, reply, endpoint == Endpoint::rerank ? "rerank" : "score");
  call->model = request.model;
  call->inputs = request.seconds.size();
  call->field = field;
  call->answer = [this, endpoint,
                  request = std::move(request)](const EmbedResult &result) {
    return answer(endpoint, request, result);
  };
  submit(std::move(std::get<EmbedRequest>(work)), call);
}

SequenceService::Answer RankService::answer(Endpoint endpoint,
                                            const RankingRequest &request,
                                            const EmbedResult &result) const {
  std::vector<double> scores;
  for (float score : result.vectors) {
    auto relevance = scorer.relevance(score);
    if (!relevance.ok())
      return ApiError{500, relevance.message(), "", "not_finite"};
    scores.push_back(*relevance);
  }
  return rankingAnswer(endpoint, request, name(), scores, result.tokens,
                       newAnswerId(endpoint));
}

} // namespace

Status serveRanking(EmbeddingModel &model,
                    const tokenizer::Tokenizer &tokenizer, RankFacts facts,
                    ServeOptions options) {
  return serveSequences(
      model, std::move(options),
      [&](EmbedEngine &engine, const ServiceOptions &service) {
        return std::make_unique<RankService>(engine, tokenizer, facts, service);
      },
      fmt::format("scores of pairs of strings, of up to {} tokens together",
                  model.shape().context),
      "first score");
}

} // namespace tessera::serve
