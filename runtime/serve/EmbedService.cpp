#include "runtime/serve/EmbedService.h"
#include "runtime/serve/Running.h"
#include "runtime/serve/Tokenize.h"

#include <algorithm>
#include <cmath>
#include <future>

#include <nlohmann/json.hpp>

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

//===--- the routes -------------------------------------------------------===//

namespace {

using Clock = EngineClock;

/// An input of one token, which shows whether the engine works.
EmbedRequest probeRequest(std::function<void(EmbedResult)> done) {
  return {{{0}}, std::nullopt, std::move(done)};
}

HealthProbe probeOf(EmbedEngine &engine) {
  return [&engine](Clock::time_point deadline, std::function<void()> done) {
    EmbedRequest request =
        probeRequest([done = std::move(done)](const EmbedResult &) { done(); });
    request.deadline = deadline;
    return engine.submit(std::move(request)).outcome ==
           Submission::Outcome::accepted;
  };
}

class EmbedService final : public CommonService {
public:
  EmbedService(EmbedEngine &engine, const tokenizer::Tokenizer &tokenizer,
               EmbedFacts facts, ServiceOptions options)
      : CommonService(ModelKind::embeds, engine, probeOf(engine),
                      std::move(options)),
        engine(engine), tokenizer(tokenizer), encoder(tokenizer),
        embedder(tokenizer, engine.shape(), std::move(facts)) {}

private:
  /// A request in progress.
  struct Call {
    EmbeddingsRequest request;
    Reply reply;
    std::optional<TraceContext> trace; ///< of the client
    Clock::time_point arrived = Clock::now();
    bool isGone = false; ///< the client has disconnected
  };
  void post(const HttpRequest &request, Endpoint endpoint,
            const Reply &reply) override;
  void embed(const HttpRequest &request, const Reply &reply);
  /// The response of /tokenize or /detokenize.
  std::variant<std::string, ApiError> tokenize(const ApiRequest &request);
  std::string engineMetrics() const override {
    return engine.metrics().print() + traceMetrics();
  }
  int64_t context() const override { return engine.shape().context; }
  /// The tokens of all inputs, or the error of one.
  std::variant<EmbedRequest, ApiError>
  makeWork(const EmbeddingsRequest &request);
  void submit(EmbedRequest work, const std::shared_ptr<Call> &call);
  void finish(const Call &call, EmbedResult result);
  void log(int status, const Call &call, int64_t tokens,
           const std::string &error = {}) const;

  EmbedEngine &engine;
  const tokenizer::Tokenizer &tokenizer;
  tokenizer::Encoder encoder; ///< for /tokenize
  TextEmbedder embedder;
};

//===--- tokenizing -------------------------------------------------------===//

std::variant<std::string, ApiError>
EmbedService::tokenize(const ApiRequest &request) {
  if (!request.model.empty() && !isServed(request.model))
    return otherModel();
  if (!request.messages.empty())
    return ApiError{400, "an encoder has no chat template; use prompt",
                    "messages", "not_supported"};
  if (request.endpoint == Endpoint::detokenize)
    return detokenizeAnswer(
        tokenizer, std::get<std::vector<int32_t>>(request.prompts.front()));
  return tokenizeAnswer(tokenizer, promptTokens(request, encoder), context(),
                        request.returnsStrings);
}

void EmbedService::post(const HttpRequest &http, Endpoint endpoint,
                        const Reply &reply) {
  if (endpoint == Endpoint::embeddings)
    return embed(http, reply);
  auto parsed = parseApiRequest(http.body, endpoint);
  if (const auto *error = std::get_if<ApiError>(&parsed))
    return sendError(reply, *error);
  auto answer = tokenize(std::get<ApiRequest>(parsed));
  if (const auto *error = std::get_if<ApiError>(&answer))
    return sendError(reply, *error);
  sendJson(reply, std::move(std::get<std::string>(answer)));
}

//===--- embeddings -------------------------------------------------------===//

static ApiError invalid(const char *param, std::string message) {
  return {400, std::move(message), param, "invalid_value"};
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
  auto call = std::make_shared<Call>(
      Call{std::move(std::get<EmbeddingsRequest>(parsed)), reply,
           parseTraceParent(http.traceParent)});
  EmbeddingsRequest &request = call->request;
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
  submit(std::move(std::get<EmbedRequest>(work)), call);
}

void EmbedService::submit(EmbedRequest work,
                          const std::shared_ptr<Call> &call) {
  work.deadline = call->arrived + options.requestTime;
  work.done = [this, call](EmbedResult result) {
    server->post([this, call, result = std::move(result)]() mutable {
      finish(*call, std::move(result));
    });
  };
  Submission submission = engine.submit(std::move(work));
  const Reply &reply = call->reply;
  using Outcome = Submission::Outcome;
  switch (submission.outcome) {
  case Outcome::accepted:
    reply->onGone = [this, weak = std::weak_ptr(call),
                     id = submission.ids.front()] {
      if (auto left = weak.lock())
        left->isGone = true;
      engine.cancel(id);
    };
    return;
  case Outcome::invalid:
    return sendError(reply, invalid("input", submission.message));
  case Outcome::full:
    return sendError(reply, {429, submission.message, "", "queue_full"});
  case Outcome::closed:
    return sendError(reply, {503, submission.message, "", "shutting_down"});
  }
}

void EmbedService::finish(const Call &call, EmbedResult result) {
  if (call.isGone)
    // nginx's status
    return log(499, call, result.tokens, "the client disconnected");
  auto fail = [&](int status, const std::string &message, const char *code) {
    log(status, call, result.tokens, message);
    sendError(call.reply, {status, message, "", code});
  };
  if (result.reason == FinishReason::deadline)
    return fail(504, "the request timed out", "timeout");
  if (result.reason == FinishReason::cancelled)
    return fail(503, "the server is shutting down", "shutting_down");
  if (result.reason != FinishReason::stop)
    return fail(500, result.message, "engine_error");
  const EmbeddingsRequest &request = call.request;
  std::vector<float> vectors =
      embedder.cut(std::move(result.vectors), *request.dimensions);
  if (!std::ranges::all_of(vectors, [](float x) { return std::isfinite(x); }))
    return fail(500, "an embedding has elements that are not finite",
                "not_finite");
  log(200, call, result.tokens);
  sendJson(call.reply, embeddingsAnswer(name(), vectors, *request.dimensions,
                                        request.base64, result.tokens));
}

void EmbedService::log(int status, const Call &call, int64_t tokens,
                       const std::string &error) const {
  using std::chrono::milliseconds;
  auto took =
      std::chrono::duration_cast<milliseconds>(Clock::now() - call.arrived);
  nlohmann::ordered_json line = {{"event", "embeddings"},
                                 {"status", status},
                                 {"inputs", call.request.inputs.size()},
                                 {"prompt_tokens", tokens},
                                 {"ms", took.count()}};
  std::fprintf(stderr, "%s\n", line.dump().c_str());
  if (!options.traces)
    return;
  RequestTrace made;
  made.context = call.trace;
  made.operation = "embeddings";
  made.requestedModel = call.request.model;
  made.model = name();
  made.status = status;
  made.error = error;
  made.arrived = call.arrived;
  made.ended = Clock::now();
  made.promptTokens = tokens;
  options.traces->add(std::move(made));
}

/// The engine is ready when it has computed an embedding.
Status tryOnce(EmbedEngine &engine) {
  std::promise<EmbedResult> came;
  Submission submission = engine.submit(probeRequest(
      [&](EmbedResult result) { came.set_value(std::move(result)); }));
  if (submission.outcome != Submission::Outcome::accepted)
    return Status::error("the engine does not start: {}", submission.message);
  EmbedResult result = came.get_future().get();
  if (result.reason != FinishReason::stop)
    return Status::error("the engine does not start: {}", result.message);
  return Status::success();
}

} // namespace

Status serveEmbeddings(EmbeddingModel &model,
                       const tokenizer::Tokenizer &tokenizer, EmbedFacts facts,
                       ServeOptions options) {
  options.engine.maxTokens =
      std::max(options.engine.maxTokens, 64 * model.shape().context);
  options.service.requestTime = std::chrono::seconds(options.requestSeconds);
  options.service.traces = options.openTraces();
  EmbedEngine engine(model, options.engine);
  EmbedService service(engine, tokenizer, std::move(facts), options.service);
  auto server = HttpServer::listen(*options.address, options.http, service);
  if (!server.ok())
    return server.status();
  service.attach(**server);
  TESSERA_RETURN_IF_ERROR(tryOnce(engine));
  const EmbeddingShape &shape = model.shape();
  options.phases.end("first embedding");
  sayReady(options, (*server)->port(),
           fmt::format("embeddings of {}, inputs of up to {} tokens",
                       shape.width, shape.context));
  return runUntilEnd(**server, service, engine,
                     std::chrono::seconds(options.drainSeconds));
}

} // namespace tessera::serve
