#include "runtime/serve/EmbedService.h"
#include "runtime/serve/Ending.h"
#include "runtime/serve/ProcessMetrics.h"
#include "runtime/serve/Routes.h"
#include "runtime/support/CompilationCount.h"
#include "runtime/support/Text.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <future>

#include <nlohmann/json.hpp>

namespace tessera::serve {

//===--- texts ------------------------------------------------------------===//

StatusOr<std::vector<int32_t>>
TextEmbedder::tokens(const PromptInput &input,
                     std::optional<int64_t> truncate) {
  const int64_t most = std::min(
      truncate && *truncate > 0 ? *truncate : shape.context, shape.context);
  if (const auto *given = std::get_if<std::vector<int32_t>>(&input)) {
    std::vector<int32_t> tokens = *given;
    if (truncate && int64_t(tokens.size()) > most)
      tokens.resize(std::size_t(most));
    TESSERA_RETURN_IF_ERROR(checkText(shape, tokens));
    return tokens;
  }
  std::vector<uint32_t> ids =
      encoder.encodeFramed(facts.prompt + std::get<std::string>(input));
  if (truncate && int64_t(ids.size()) > most &&
      !encoder.cutFramed(ids, std::size_t(most)))
    return Status::error("{} tokens hold no text beside the model's own", most);
  std::vector<int32_t> tokens(ids.begin(), ids.end());
  TESSERA_RETURN_IF_ERROR(checkText(shape, tokens));
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
    return Status::error("this model's vectors have {} elements and were not "
                         "made to be cut; leave dimensions out",
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

class EmbedService final : public HttpHandler {
public:
  EmbedService(EmbedEngine &engine, const tokenizer::Tokenizer &tokenizer,
               EmbedFacts facts, ServiceOptions options)
      : engine(engine), embedder(tokenizer, engine.shape(), std::move(facts)),
        options(std::move(options)), started(std::time(nullptr)) {}
  void attach(HttpServer &to) { server = &to; }
  /// Nothing is to be compiled from here on.
  void markReady() { compiledBefore = compilationCount; }

  std::string refuse(const HttpRequest &head) override {
    if (hasKey(head, options.apiKeys))
      return {};
    ++answers[401];
    return keyMissing().json();
  }
  std::string describe(int status, std::string_view message) override {
    ++answers[status];
    return ApiError{status, std::string(message), "", "bad_request"}.json();
  }
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override;

  /// A text of one token, which shows whether the engine works.
  static EmbedRequest probe(std::function<void(EmbedResult)> done) {
    return {{{0}}, std::nullopt, std::move(done)};
  }

private:
  using Reply = std::shared_ptr<HttpReply>;
  void sendJson(const Reply &reply, std::string body) {
    ++answers[200];
    reply->send(200, "application/json", std::move(body));
  }
  void sendError(const Reply &reply, const ApiError &error,
                 std::string headers = {});
  /// A request on its way.
  struct Call {
    EmbeddingsRequest request;
    Reply reply;
    Clock::time_point arrived = Clock::now();
    bool isGone = false; ///< its client
  };
  void embed(const HttpRequest &request, const Reply &reply);
  void finish(const Call &call, EmbedResult result);
  void models(const HttpRequest &request, const Reply &reply);
  void health(const Reply &reply);
  std::string metrics() const;
  static void log(int status, const Call &call, int64_t tokens);

  EmbedEngine &engine;
  TextEmbedder embedder;
  const ServiceOptions options;
  HttpServer *server = nullptr;
  int64_t started; ///< seconds since 1970
  uint64_t compiledBefore = 0;
  std::map<int, uint64_t> answers; ///< by status
};

void EmbedService::sendError(const Reply &reply, const ApiError &error,
                             std::string headers) {
  ++answers[error.status];
  if (error.status == 429 || error.status == 503)
    headers += "Retry-After: 1\r\n";
  reply->send(error.status, "application/json", error.json(), headers);
}

void EmbedService::handle(HttpRequest request, Reply reply) {
  const ApiError noText{400,
                        "this model is an encoder: it embeds texts "
                        "(/v1/embeddings) and generates none",
                        "model", "not_supported"};
  struct Choice {
    std::string_view method, path;
    std::function<void()> run;
  };
  const Choice choices[] = {
      {"POST", "/v1/embeddings", [&] { embed(request, reply); }},
      {"POST", "/v1/completions", [&] { sendError(reply, noText); }},
      {"POST", "/v1/chat/completions", [&] { sendError(reply, noText); }},
      {"POST", "/v1/responses", [&] { sendError(reply, noText); }},
      {"GET", "/v1/models", [&] { models(request, reply); }},
      {"GET", "/health", [&] { health(reply); }},
      {"GET", "/metrics",
       [&] {
         ++answers[200];
         reply->send(200, "text/plain; version=0.0.4", metrics());
       }},
      {"GET", "/version",
       [&] {
         sendJson(reply, nlohmann::json{{"version", options.version}}.dump());
       }},
  };
  for (const Choice &each : choices) {
    if (each.path != request.path &&
        !(each.path == "/v1/models" && request.path.starts_with("/v1/models/")))
      continue;
    if (each.method != request.method)
      return sendError(
          reply,
          {405, "this path has another method", "", "method_not_allowed"},
          fmt::format("Allow: {}\r\n", each.method));
    // A browser sends along what its user once typed, whoever's page asks.
    if (request.isForeign && request.method == "POST")
      return sendError(
          reply, {403, "a page of another site may not ask", "", "cross_site"});
    return each.run();
  }
  sendError(reply, {404, "there is no such path", "", "not_found"});
}

void EmbedService::models(const HttpRequest &request, const Reply &reply) {
  nlohmann::ordered_json model = {{"id", options.model},
                                  {"object", "model"},
                                  {"created", started},
                                  {"owned_by", "tessera"},
                                  {"max_model_len", engine.shape().context}};
  constexpr std::string_view list = "/v1/models";
  if (request.path == list)
    model = {{"object", "list"}, {"data", {std::move(model)}}};
  else if (percentDecoded(
               std::string_view(request.path).substr(list.size() + 1)) !=
           options.model)
    return sendError(
        reply, {404, "there is no such model", "model", "model_not_found"});
  // A folder's name need not be UTF-8.
  sendJson(reply, model.dump(-1, ' ', false,
                             nlohmann::ordered_json::error_handler_t::replace));
}

std::string EmbedService::metrics() const {
  return engine.metrics().print() + answerMetrics(answers) +
         processMetrics(options.version, compiledBefore);
}

// Healthy is an engine that computed within the last seconds, or does so while
// one can wait.
void EmbedService::health(const Reply &reply) {
  auto answered = std::make_shared<bool>(false);
  auto answer = [this, reply, answered](bool healthy) {
    if (std::exchange(*answered, true))
      return;
    if (healthy)
      return sendJson(reply, R"({"status":"ok"})");
    sendError(reply,
              {503, engine.deathCause().value_or("no vector came in time"), "",
               "unhealthy"});
  };
  if (engine.deathCause())
    return answer(false);
  if (Clock::now() - engine.lastBatch() < options.health.recent)
    return answer(true);
  auto asked = Clock::now();
  Submission submission =
      engine.submit(probe([this, answer](const EmbedResult &result) {
        server->post([answer, isWell = result.reason == FinishReason::stop] {
          answer(isWell);
        });
      }));
  if (submission.outcome == Submission::Outcome::closed)
    return answer(false);
  // Behind a full queue, or a long one, a batch of others says the same.
  server->after(options.health.patience,
                [this, answer, asked] { answer(engine.lastBatch() >= asked); });
}

//===--- embeddings -------------------------------------------------------===//

void EmbedService::embed(const HttpRequest &http, const Reply &reply) {
  auto parsed = parseEmbeddingsRequest(http.body);
  if (const auto *error = std::get_if<ApiError>(&parsed))
    return sendError(reply, *error);
  auto call = std::make_shared<Call>(
      Call{std::move(std::get<EmbeddingsRequest>(parsed)), reply});
  EmbeddingsRequest *request = &call->request;
  if (request->model != options.model)
    return sendError(reply, {404,
                             fmt::format("there is no such model; the one that "
                                         "is served is {}",
                                         options.model),
                             "model", "model_not_found"});
  auto invalid = [&](const char *param, const std::string &message) {
    sendError(reply, {400, message, param, "invalid_value"});
  };
  if (!request->dimensions)
    request->dimensions = engine.shape().width;
  if (Status status = embedder.checkDimensions(*request->dimensions);
      !status.ok())
    return invalid("dimensions", status.message());
  EmbedRequest work;
  for (std::size_t i = 0; i < request->inputs.size(); ++i) {
    auto tokens = embedder.tokens(request->inputs[i], request->truncate);
    if (!tokens.ok())
      return invalid("input", fmt::format("input {}: {}; shorten it, or let "
                                          "truncate_prompt_tokens do it",
                                          i, tokens.message()));
    work.texts.push_back(tokens.take());
  }
  work.deadline = call->arrived + options.requestTime;
  work.done = [this, call](EmbedResult result) {
    server->post([this, call, result = std::move(result)]() mutable {
      finish(*call, std::move(result));
    });
  };
  Submission submission = engine.submit(std::move(work));
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
    return invalid("input", submission.message);
  case Outcome::full:
    return sendError(reply, {429, submission.message, "", "queue_full"});
  case Outcome::closed:
    return sendError(reply, {503, submission.message, "", "shutting_down"});
  }
}

void EmbedService::finish(const Call &call, EmbedResult result) {
  if (call.isGone)
    return log(499, call, result.tokens); // nginx's number for it
  auto fail = [&](int status, const std::string &message, const char *code) {
    log(status, call, result.tokens);
    sendError(call.reply, {status, message, "", code});
  };
  if (result.reason == FinishReason::deadline)
    return fail(504, "the request took too long and was given up", "timeout");
  if (result.reason == FinishReason::cancelled)
    return fail(503, "the server is shutting down", "shutting_down");
  if (result.reason != FinishReason::stop)
    return fail(500, result.message, "engine_error");
  const EmbeddingsRequest &request = call.request;
  std::vector<float> vectors =
      embedder.cut(std::move(result.vectors), *request.dimensions);
  if (!std::ranges::all_of(vectors, [](float x) { return std::isfinite(x); }))
    return fail(500, "a vector has elements that are no numbers", "not_finite");
  log(200, call, result.tokens);
  sendJson(call.reply,
           embeddingsAnswer(options.model, vectors, *request.dimensions,
                            request.base64, result.tokens));
}

void EmbedService::log(int status, const Call &call, int64_t tokens) {
  using std::chrono::milliseconds;
  auto took =
      std::chrono::duration_cast<milliseconds>(Clock::now() - call.arrived);
  nlohmann::ordered_json line = {{"event", "embeddings"},
                                 {"status", status},
                                 {"inputs", call.request.inputs.size()},
                                 {"prompt_tokens", tokens},
                                 {"ms", took.count()}};
  std::fprintf(stderr, "%s\n", line.dump().c_str());
}

/// Ready is an engine from which a vector came.
Status tryOnce(EmbedEngine &engine) {
  std::promise<EmbedResult> came;
  Submission submission = engine.submit(EmbedService::probe(
      [&](EmbedResult result) { came.set_value(std::move(result)); }));
  if (submission.outcome != Submission::Outcome::accepted)
    return Status::error("the engine does not start: {}", submission.message);
  EmbedResult result = came.get_future().get();
  if (result.reason != FinishReason::stop)
    return Status::error("the engine does not start: {}", result.message);
  return Status::success();
}

} // namespace

Status serveEmbeddings(VectorModel &model,
                       const tokenizer::Tokenizer &tokenizer, EmbedFacts facts,
                       ServeOptions options) {
  options.engine.maxTokens =
      std::max(options.engine.maxTokens, 64 * model.shape().context);
  options.service.requestTime = std::chrono::seconds(options.requestSeconds);
  EmbedEngine engine(model, options.engine);
  EmbedService service(engine, tokenizer, std::move(facts), options.service);
  auto server =
      HttpServer::listen(options.host, options.port, options.http, service);
  if (!server.ok())
    return server.status();
  service.attach(**server);
  TESSERA_RETURN_IF_ERROR(tryOnce(engine));
  service.markReady();
  options.phases.end("first vector");
  std::fprintf(stderr, "tessera: ready in %s\n",
               options.phases.describe().c_str());
  const VectorShape &shape = model.shape();
  std::fprintf(stderr,
               "tessera: ready: %s on http://%s:%u, vectors of %lld, texts of "
               "up to %lld tokens\n",
               options.service.model.c_str(), options.host.c_str(),
               unsigned((*server)->port()), (long long)shape.width,
               (long long)shape.context);
  {
    Ending<EmbedEngine> ending(engine, **server,
                               std::chrono::seconds(options.drainSeconds));
    (*server)->post([&] { ending.watchEngine(); });
    (*server)->run([&] { ending.begin(); });
    // However it ended, nothing may be posted from here on.
    engine.drain(Clock::now());
  }
  if (auto cause = engine.deathCause())
    return Status::error("the engine has stopped: {}", *cause);
  return Status::success();
}

} // namespace tessera::serve
