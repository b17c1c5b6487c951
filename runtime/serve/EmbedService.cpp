#include "runtime/serve/EmbedService.h"
#include "runtime/serve/SequenceService.h"

#include <algorithm>
#include <cmath>

namespace tessera::serve {

//===--- inputs
//------------------------------------------------------------===//

Status TextEmbedder::check(std::span<const int32_t> tokens,
                           std::string_view advice) const {
  Status status = checkText(shape, tokens);
  if (status.ok() || int64_t(tokens.size()) <= shape.context)
    return status;
  return Status::error("{}; {}", status.message(), advice);
}

StatusOr<std::vector<int32_t>>
TextEmbedder::tokens(const PromptInput &input, std::optional<int64_t> truncate,
                     std::string_view advice) {
  const int64_t most = std::min(
      truncate && *truncate > 0 ? *truncate : shape.context, shape.context);
  if (const auto *given = std::get_if<std::vector<int32_t>>(&input)) {
    std::vector<int32_t> tokens = *given;
    if (truncate && int64_t(tokens.size()) > most)
      tokens.resize(std::size_t(most));
    TESSERA_RETURN_IF_ERROR(check(tokens, advice));
    return tokens;
  }
  std::vector<uint32_t> ids =
      encoder.encodeFramed(facts.prompt + std::get<std::string>(input));
  if (truncate && int64_t(ids.size()) > most &&
      !encoder.cutFramed(ids, std::size_t(most)))
    return Status::error("truncated to {} tokens, an input has only the "
                         "model's special tokens; allow more",
                         most);
  std::vector<int32_t> tokens(ids.begin(), ids.end());
  TESSERA_RETURN_IF_ERROR(check(tokens, advice));
  return tokens;
}

Status TextEmbedder::checkDimensions(int64_t dimensions) const {
  const bool fits = dimensions >= 1 && dimensions <= shape.width;
  if (dimensions == shape.width ||
      (fits &&
       (facts.cutsAnywhere || std::ranges::count(facts.cuts, dimensions))))
    return Status::success();
  if (facts.cutsAnywhere)
    return Status::error("dimensions must be from 1 to {}", shape.width);
  if (facts.cuts.empty())
    return Status::error(
        "this model's embeddings have {} elements and were not "
        "trained to be truncated; leave dimensions out",
        shape.width);
  return Status::error("dimensions must be {} or {}",
                       fmt::join(facts.cuts, ", "), shape.width);
}

std::vector<float> TextEmbedder::cut(std::vector<float> vectors,
                                     int64_t dimensions) const {
  if (dimensions == shape.width)
    return vectors;
  std::vector<float> shorter;
  for (std::size_t at = 0; at < vectors.size(); at += shape.width) {
    auto kept = std::span(vectors).subspan(at, dimensions);
    double sum = 0;
    for (float each : kept)
      sum += double(each) * double(each);
    const double length = facts.unit ? std::max(std::sqrt(sum), 1e-12) : 1;
    for (float each : kept)
      shorter.push_back(float(double(each) / length));
  }
  return shorter;
}

//===--- the route --------------------------------------------------------===//

namespace {

class EmbedService final : public SequenceService {
public:
  EmbedService(EmbedEngine &engine, const tokenizer::Tokenizer &tokenizer,
               EmbedFacts facts, ServiceOptions options)
      : SequenceService(ModelKind::embeds, engine, tokenizer,
                        std::move(options)),
        embedder(tokenizer, engine.shape(), std::move(facts)) {}

private:
  void post(const HttpRequest &request, Endpoint endpoint,
            const Reply &reply) override;
  void embed(const HttpRequest &request, const Reply &reply);
  /// The tokens of all inputs, or the error of one.
  std::variant<EmbedRequest, ApiError>
  makeWork(const EmbeddingsRequest &request);
  Answer answer(const EmbeddingsRequest &request, EmbedResult result) const;

  TextEmbedder embedder;
};

void EmbedService::post(const HttpRequest &http, Endpoint endpoint,
                        const Reply &reply) {
  if (endpoint == Endpoint::embeddings)
    return embed(http, reply);
  tokenize(http, endpoint, reply);
}

std::variant<EmbedRequest, ApiError>
EmbedService::makeWork(const EmbeddingsRequest &request) {
  EmbedRequest work;
  for (std::size_t i = 0; i < request.inputs.size(); ++i) {
    auto tokens = embedder.tokens(request.inputs[i], request.truncate,
                                  "shorten it, or set truncate_prompt_tokens");
    if (!tokens.ok())
      return invalid("input", fmt::format("input {}: {}", i, tokens.message()));
    work.sequences.push_back(tokens.take());
  }
  return work;
}

void EmbedService::embed(const HttpRequest &http, const Reply &reply) {
  auto parsed = parseEmbeddingsRequest(http.body);
  if (const auto *error = std::get_if<ApiError>(&parsed))
    return sendError(reply, *error);
  auto &request = std::get<EmbeddingsRequest>(parsed);
  if (!request.model.empty() && !isServed(request.model))
    return sendError(reply, otherModel());
  if (!request.dimensions)
    request.dimensions = engine.shape().width;
  if (Status status = embedder.checkDimensions(*request.dimensions);
      !status.ok())
    return sendError(reply, invalid("dimensions", status.message()));
  auto work = makeWork(request);
  if (const auto *error = std::get_if<ApiError>(&work))
    return sendError(reply, *error);
  auto call = std::make_shared<Call>(http, reply, "embeddings");
  call->model = request.model;
  call->inputs = request.inputs.size();
  call->field = "input";
  request.inputs.clear();
  call->answer = [this, request = std::move(request)](EmbedResult result) {
    return answer(request, std::move(result));
  };
  submit(std::move(std::get<EmbedRequest>(work)), call);
}

SequenceService::Answer EmbedService::answer(const EmbeddingsRequest &request,
                                             EmbedResult result) const {
  std::vector<float> vectors =
      embedder.cut(std::move(result.vectors), *request.dimensions);
  if (!std::ranges::all_of(vectors, [](float x) { return std::isfinite(x); }))
    return ApiError{500, "an embedding has elements that are not finite", "",
                    "not_finite"};
  return embeddingsAnswer(name(), vectors, *request.dimensions, request.base64,
                          result.tokens);
}

} // namespace

Status serveEmbeddings(EmbeddingModel &model,
                       const tokenizer::Tokenizer &tokenizer, EmbedFacts facts,
                       ServeOptions options) {
  const EmbeddingShape &shape = model.shape();
  return serveSequences(
      model, std::move(options),
      [&](EmbedEngine &engine, const ServiceOptions &service) {
        return std::make_unique<EmbedService>(engine, tokenizer,
                                              std::move(facts), service);
      },
      fmt::format("embeddings of {}, inputs of up to {} tokens", shape.width,
                  shape.context),
      "first embedding");
}

} // namespace tessera::serve
