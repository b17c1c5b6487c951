#include "runtime/serve/Service.h"
#include "runtime/serve/Embeddings.h"
#include "runtime/serve/Generation.h"
#include "runtime/serve/OpenApi.h"
#include "runtime/serve/Page.h"
#include "runtime/serve/ProcessMetrics.h"
#include "runtime/support/CompilationCount.h"

#include <algorithm>
#include <ctime>
#include <random>

#include <nlohmann/json.hpp>

namespace tessera::serve {

bool equalSecrets(std::string_view given, std::string_view secret) {
  // The given text is walked through whatever it is.
  auto apart = unsigned(given.size() != secret.size());
  for (std::size_t i = 0; i < given.size(); ++i)
    apart |= unsigned(static_cast<unsigned char>(
        given[i] ^ (secret.empty() ? 0 : secret[i % secret.size()])));
  return apart == 0;
}

void Service::markReady() { compiledBefore = compilationCount; }

/// What follows "Bearer", or the password of "Basic", which is how a browser
/// asks its user.
static std::string keyOf(std::string_view authorization) {
  constexpr std::string_view bearer = "Bearer ", basic = "Basic ";
  if (authorization.starts_with(bearer))
    return std::string(authorization.substr(bearer.size()));
  if (!authorization.starts_with(basic))
    return {};
  std::string pair = base64Decoded(authorization.substr(basic.size()));
  std::size_t colon = pair.find(':');
  return colon == std::string::npos ? std::string() : pair.substr(colon + 1);
}

Service::Service(Engine &engine, const tokenizer::Tokenizer &tokenizer,
                 const ChatRenderer &chat, ServiceOptions options)
    : engine(engine), tokenizer(tokenizer), chat(chat),
      options(std::move(options)), encoder(tokenizer), forms(tokenizer),
      started(std::time(nullptr)), health(engine, this->options.health) {}

//===--- routes -----------------------------------------------------------===//

bool hasKey(const HttpRequest &head, const std::vector<std::string> &keys) {
  if (keys.empty())
    return true;
  std::string given = keyOf(head.authorization);
  bool known = false;
  for (const std::string &key : keys)
    known |= equalSecrets(given, key); // all of them, always
  return known;
}

ApiError keyMissing() {
  return {401, "an API key is needed: Authorization: Bearer KEY", "",
          "invalid_api_key"};
}

std::string Service::refuse(const HttpRequest &head) {
  if (hasKey(head, options.apiKeys))
    return {};
  ++answers[401];
  return keyMissing().json();
}

std::string Service::describe(int status, std::string_view message) {
  ++answers[status];
  return ApiError{status, std::string(message), "", "bad_request"}.json();
}

void Service::sendError(const std::shared_ptr<HttpReply> &reply,
                        const ApiError &error, std::string headers) {
  ++answers[error.status];
  if (error.status == 429 || error.status == 503)
    headers += "Retry-After: 1\r\n";
  reply->send(error.status, "application/json", error.json(), headers);
}

void Service::sendText(const std::shared_ptr<HttpReply> &reply,
                       std::string_view type, std::string body) {
  ++answers[200];
  reply->send(200, type, std::move(body));
}

void Service::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  if (request.method == "POST" && request.path == "/v1/embeddings")
    return sendError(reply, noEmbeddings());
  RouteMatch match = findRoute(request.method, request.path);
  if (!match.route && !match.allowed.empty())
    return sendError(
        reply, {405, "this path has another method", "", "method_not_allowed"},
        fmt::format("Allow: {}\r\n", match.allowed));
  if (!match.route)
    return sendError(reply, {404, "there is no such path", "", "not_found"});
  // A browser sends along what its user once typed, whoever's page asks.
  if (match.route->body && request.isForeign)
    return sendError(
        reply, {403, "a page of another site may not ask", "", "cross_site"});
  if (match.route->body)
    return generate(request, *match.route->body, reply);
  get(match.route->id, match.rest, reply);
}

void Service::get(RouteId route, std::string_view rest,
                  const std::shared_ptr<HttpReply> &reply) {
  constexpr std::string_view json = "application/json";
  switch (route) {
  case RouteId::models:
    return sendText(reply, json,
                    R"({"object":"list","data":[)" + modelJson() + "]}");
  case RouteId::model:
    if (percentDecoded(rest) != options.model)
      return sendError(
          reply, {404, "there is no such model", "model", "model_not_found"});
    return sendText(reply, json, modelJson());
  case RouteId::health:
    return checkHealth(reply);
  case RouteId::metrics:
    return sendText(reply, "text/plain; version=0.0.4", metrics());
  case RouteId::version:
    return sendText(reply, json,
                    nlohmann::json{{"version", options.version}}.dump());
  case RouteId::openApi:
    return sendText(reply, json, openApiJson(options.version, options.model));
  case RouteId::page:
    return sendText(reply, "text/html; charset=utf-8", std::string(pageHtml()));
  case RouteId::completions:
  case RouteId::chat:
  case RouteId::responses:
    return; // generate()
  }
}

std::string Service::modelJson() const {
  nlohmann::ordered_json model = {{"id", options.model},
                                  {"object", "model"},
                                  {"created", started},
                                  {"owned_by", "tessera"},
                                  {"max_model_len", engine.shape().context}};
  // A folder's name need not be UTF-8.
  return model.dump(-1, ' ', false,
                    nlohmann::ordered_json::error_handler_t::replace);
}

void Service::checkHealth(const std::shared_ptr<HttpReply> &reply) {
  health.ask(*server, [this, reply](const std::string &problem) {
    if (!problem.empty())
      return sendError(reply, {503, problem, "", "unhealthy"});
    sendText(reply, "application/json", R"({"status":"ok"})");
  });
}

std::string Service::metrics() const {
  return engine.metrics().print() + answerMetrics(answers) +
         processMetrics(options.version, compiledBefore);
}

//===--- generation -------------------------------------------------------===//

std::optional<ApiError> Service::makeTokens(const PromptInput &prompt,
                                            std::vector<int32_t> &to) {
  if (const auto *tokens = std::get_if<std::vector<int32_t>>(&prompt)) {
    to = *tokens;
  } else {
    for (uint32_t id : encoder.encodeFramed(std::get<std::string>(prompt)))
      to.push_back(int32_t(id));
  }
  // An empty prompt starts a document.
  if (to.empty() && tokenizer.documentEnd())
    to.push_back(int32_t(*tokenizer.documentEnd()));
  if (to.empty())
    return ApiError{400,
                    "the prompt is empty, and the tokenizer has no token that "
                    "starts a text",
                    "prompt", "invalid_value"};
  return std::nullopt;
}

std::optional<ApiError>
Service::makePrompts(const ApiRequest &request,
                     std::vector<std::vector<int32_t>> &to) {
  for (const PromptInput &prompt : request.prompts)
    if (auto found = makeTokens(prompt, to.emplace_back()))
      return found;
  if (request.endpoint == Endpoint::completions)
    return std::nullopt;
  auto tokens = chatTokens(chat, request.messages, tokenizer, encoder);
  if (!tokens.ok())
    return ApiError{400, tokens.message(),
                    std::string(inputField(request.endpoint)), "invalid_value"};
  to.push_back(tokens.take());
  return std::nullopt;
}

std::vector<std::string> Service::stopsOf(const ApiRequest &request,
                                          std::vector<int32_t> &tokens) const {
  std::vector<std::string> stops = request.stop;
  if (request.ignoreEnd)
    return stops;
  tokens = options.endTokens;
  if (auto end = tokenizer.documentEnd(); end && tokens.empty())
    tokens.push_back(int32_t(*end));
  if (request.endpoint != Endpoint::completions)
    addChatStops(chat, tokenizer, tokens, stops);
  return stops;
}

/// An answer that is not a stream stands in memory as a whole.
static std::optional<ApiError>
checkLogprobs(const ApiRequest &request,
              std::span<const EngineRequest> requests) {
  if (!request.logprobs || request.stream)
    return std::nullopt;
  int64_t tokens = 0;
  for (const EngineRequest &each : requests)
    tokens += each.maxTokens;
  if (tokens <= kMaxLogprobs / (1 + *request.logprobs))
    return std::nullopt;
  return ApiError{400,
                  fmt::format("logprobs of {} tokens with {} likeliest each "
                              "are more than the {} of one answer; ask for "
                              "fewer tokens, or for a stream",
                              tokens, *request.logprobs, kMaxLogprobs),
                  "logprobs", "invalid_value"};
}

std::optional<ApiError> Service::makeRequests(const ApiRequest &request,
                                              std::vector<EngineRequest> &to) {
  for (const auto &[token, bias] : request.sampling.bias)
    if (uint32_t(token) >= tokenizer.vocabSize())
      return ApiError{400,
                      fmt::format("token {} is outside the vocabulary of {}",
                                  token, tokenizer.vocabSize()),
                      "logit_bias", "invalid_value"};
  std::vector<std::vector<int32_t>> prompts;
  if (auto found = makePrompts(request, prompts))
    return found;
  std::random_device device;
  uint64_t seed = request.seed.value_or(uint64_t(device()) << 32 | device());
  for (const std::vector<int32_t> &prompt : prompts) {
    // OpenAI's default for completions is 16; a chat's answer may fill the
    // context.
    int64_t room = engine.shape().context - int64_t(prompt.size());
    if (room < 1)
      return ApiError{400,
                      fmt::format("the prompt has {} tokens, and the context "
                                  "of {} has room for none behind it",
                                  prompt.size(), engine.shape().context),
                      std::string(inputField(request.endpoint)),
                      "invalid_value"};
    int64_t usual = request.endpoint == Endpoint::completions ? 16 : room;
    for (int64_t i = 0; i < request.n; ++i) {
      EngineRequest &each = to.emplace_back();
      each.prompt = prompt;
      each.sampling = request.sampling;
      each.sampling.seed = seed + uint64_t(i);
      each.maxTokens = request.maxTokens.value_or(
          std::max<int64_t>(1, std::min(usual, room)));
      each.logprobs = request.logprobs;
      each.deadline = EngineClock::now() + options.requestTime;
    }
  }
  return checkLogprobs(request, to);
}

static std::string_view idPrefix(Endpoint endpoint) {
  switch (endpoint) {
  case Endpoint::completions:
    return "cmpl-";
  case Endpoint::chat:
    return "chatcmpl-";
  case Endpoint::responses:
    return "resp_";
  }
  return "";
}

void Service::generate(const HttpRequest &http, Endpoint endpoint,
                       const std::shared_ptr<HttpReply> &reply) {
  auto parsed = parseApiRequest(http.body, endpoint, options.sampling);
  if (const auto *error = std::get_if<ApiError>(&parsed))
    return sendError(reply, *error);
  auto &request = std::get<ApiRequest>(parsed);
  if (request.model != options.model)
    return sendError(reply, {404,
                             fmt::format("there is no such model; the one that "
                                         "is served is {}",
                                         options.model),
                             "model", "model_not_found"});
  std::vector<EngineRequest> requests;
  if (auto error = makeRequests(request, requests))
    return sendError(reply, *error);
  std::vector<int32_t> stopTokens;
  std::vector<std::string> stops = stopsOf(request, stopTokens);
  AnswerHead head{
      fmt::format("{}{:x}-{}", idPrefix(endpoint), started, ++lastId),
      options.model, std::time(nullptr)};
  bool logprobs = request.logprobs.has_value();
  if (request.form)
    for (EngineRequest &each : requests)
      each.guide = forms.guide(*request.form, stopTokens);
  auto generation = std::make_shared<Generation>(
      *this, std::move(request), std::move(head), reply, requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].stopTokens = stopTokens;
    requests[i].sink = std::make_shared<Choice>(
        tokenizer, stops, i, logprobs, [this, generation](Delta delta) {
          server->post([generation, delta = std::move(delta)]() mutable {
            generation->take(std::move(delta));
          });
        });
  }
  using Outcome = Submission::Outcome;
  Submission submission = engine.submit(std::move(requests));
  switch (submission.outcome) {
  case Outcome::accepted:
    return generation->start(std::move(submission.ids));
  case Outcome::invalid:
    return sendError(reply,
                     {400, submission.message,
                      std::string(inputField(endpoint)), "invalid_value"});
  case Outcome::full:
    return sendError(reply, {429, submission.message, "", "queue_full"});
  case Outcome::closed:
    return sendError(reply, {503, submission.message, "", "shutting_down"});
  }
}

} // namespace tessera::serve
