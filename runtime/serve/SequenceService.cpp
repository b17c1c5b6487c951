#include "runtime/serve/SequenceService.h"
#include "runtime/serve/Running.h"
#include "runtime/serve/Tokenize.h"

#include <future>

#include <nlohmann/json.hpp>

namespace tessera::serve {

/// An input of one token, which shows whether the engine works.
static EmbedRequest probeRequest(std::function<void(EmbedResult)> done) {
  return {{{0}}, std::nullopt, std::move(done)};
}

static HealthProbe probeOf(EmbedEngine &engine) {
  return [&engine](EngineClock::time_point deadline,
                   std::function<void()> done) {
    EmbedRequest request =
        probeRequest([done = std::move(done)](const EmbedResult &) { done(); });
    request.deadline = deadline;
    return engine.submit(std::move(request)).outcome ==
           Submission::Outcome::accepted;
  };
}

SequenceService::SequenceService(ModelKind kind, EmbedEngine &engine,
                                 const tokenizer::Tokenizer &tokenizer,
                                 ServiceOptions options)
    : CommonService(kind, engine, probeOf(engine), std::move(options)),
      engine(engine), tokenizer(tokenizer), encoder(tokenizer) {}

SequenceService::Call::Call(const HttpRequest &http, const Reply &reply,
                            const char *operation)
    : reply(reply), trace(parseTraceParent(http.traceParent)),
      operation(operation) {}

std::string SequenceService::engineMetrics() const {
  return engine.metrics().print() + traceMetrics();
}

//===--- tokenizing -------------------------------------------------------===//

void SequenceService::tokenize(const HttpRequest &http, Endpoint endpoint,
                               const Reply &reply) {
  auto parsed = parseApiRequest(http.body, endpoint);
  if (const auto *error = std::get_if<ApiError>(&parsed))
    return sendError(reply, *error);
  const auto &request = std::get<ApiRequest>(parsed);
  if (!request.model.empty() && !isServed(request.model))
    return sendError(reply, otherModel());
  if (!request.messages.empty())
    return sendError(reply,
                     {400, "this server applies no chat template; use prompt",
                      "messages", "not_supported"});
  Answer answer =
      endpoint == Endpoint::detokenize
          ? detokenizeAnswer(tokenizer, std::get<std::vector<int32_t>>(
                                            request.prompts.front()))
          : tokenizeAnswer(tokenizer, promptTokens(request, encoder), context(),
                           request.returnsStrings);
  if (const auto *error = std::get_if<ApiError>(&answer))
    return sendError(reply, *error);
  sendJson(reply, std::move(std::get<std::string>(answer)));
}

//===--- the engine -------------------------------------------------------===//

void SequenceService::submit(EmbedRequest work,
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
    return sendError(reply, invalid(call->field, submission.message));
  case Outcome::full:
    return sendError(reply, {429, submission.message, "", "queue_full"});
  case Outcome::closed:
    return sendError(reply, {503, submission.message, "", "shutting_down"});
  }
}

void SequenceService::finish(const Call &call, EmbedResult result) {
  const int64_t tokens = result.tokens;
  if (call.isGone)
    // nginx's status
    return log(499, call, tokens, "the client disconnected");
  auto fail = [&](const ApiError &error) {
    log(error.status, call, tokens, error.message);
    sendError(call.reply, error);
  };
  if (result.reason == FinishReason::deadline)
    return fail({504, "the request timed out", "", "timeout"});
  if (result.reason == FinishReason::cancelled)
    return fail({503, "the server is shutting down", "", "shutting_down"});
  if (result.reason != FinishReason::stop)
    return fail({500, result.message, "", "engine_error"});
  Answer answer = call.answer(std::move(result));
  if (const auto *error = std::get_if<ApiError>(&answer))
    return fail(*error);
  log(200, call, tokens);
  sendJson(call.reply, std::move(std::get<std::string>(answer)));
}

void SequenceService::log(int status, const Call &call, int64_t tokens,
                          const std::string &error) const {
  using std::chrono::milliseconds;
  auto took =
      std::chrono::duration_cast<milliseconds>(Clock::now() - call.arrived);
  nlohmann::ordered_json line = {{"event", call.operation},
                                 {"status", status},
                                 {"inputs", call.inputs},
                                 {"prompt_tokens", tokens},
                                 {"ms", took.count()}};
  std::fprintf(stderr, "%s\n", line.dump().c_str());
  if (!options.traces)
    return;
  RequestTrace made;
  made.context = call.trace;
  made.operation = call.operation;
  made.requestedModel = call.model;
  made.model = name();
  made.status = status;
  made.error = error;
  made.arrived = call.arrived;
  made.ended = Clock::now();
  made.promptTokens = tokens;
  options.traces->add(std::move(made));
}

//===--- serving ----------------------------------------------------------===//

/// The engine is ready when it has computed a sequence.
static Status tryOnce(EmbedEngine &engine) {
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

Status serveSequences(EmbeddingModel &model, ServeOptions options,
                      const MakeService &make, const std::string &made,
                      const char *first) {
  options.engine.maxTokens =
      std::max(options.engine.maxTokens, 64 * model.shape().context);
  options.service.requestTime = std::chrono::seconds(options.requestSeconds);
  options.service.traces = options.openTraces();
  EmbedEngine engine(model, options.engine);
  std::unique_ptr<SequenceService> service = make(engine, options.service);
  auto server = HttpServer::listen(*options.address, options.http, *service);
  if (!server.ok())
    return server.status();
  service->attach(**server);
  TESSERA_RETURN_IF_ERROR(tryOnce(engine));
  options.phases.end(first);
  sayReady(options, (*server)->port(), made);
  return runUntilEnd(**server, *service, engine,
                     std::chrono::seconds(options.drainSeconds));
}

} // namespace tessera::serve
