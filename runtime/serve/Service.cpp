#include "runtime/serve/Service.h"
#include "runtime/serve/Generation.h"

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

Service::Service(Engine &engine, const tokenizer::Tokenizer &tokenizer,
                 const ChatTemplate &chat, ServiceOptions options)
    : engine(engine), tokenizer(tokenizer), chat(chat),
      options(std::move(options)), encoder(tokenizer),
      started(std::time(nullptr)) {}

//===--- routes -----------------------------------------------------------===//

std::string Service::refuse(const HttpRequest &head) {
  if (options.apiKeys.empty())
    return {};
  std::string_view given = head.authorization;
  constexpr std::string_view kBearer = "Bearer ";
  if (given.starts_with(kBearer))
    given.remove_prefix(kBearer.size());
  bool known = false;
  for (const std::string &key : options.apiKeys)
    known |= equalSecrets(given, key); // all of them, always
  if (known)
    return {};
  ++answers[401];
  return ApiError{401, "an API key is needed: Authorization: Bearer KEY", "",
                  "invalid_api_key"}
      .json();
}

std::string Service::describe(int status, std::string_view message) {
  ++answers[status];
  return ApiError{status, std::string(message), "", "bad_request"}.json();
}

void Service::sendError(const std::shared_ptr<HttpReply> &reply,
                        const ApiError &error) {
  ++answers[error.status];
  bool isBusy = error.status == 429 || error.status == 503;
  reply->send(error.status, "application/json", error.json(),
              isBusy ? "Retry-After: 1\r\n" : "");
}

void Service::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  struct Route {
    std::string_view method, path;
    std::function<void()> run;
  };
  auto text = [&](std::string_view type, std::string body) {
    ++answers[200];
    reply->send(200, type, std::move(body));
  };
  const Route routes[] = {
      {"POST", "/v1/completions",
       [&] { generate(request, Endpoint::completions, reply); }},
      {"POST", "/v1/chat/completions",
       [&] { generate(request, Endpoint::chat, reply); }},
      {"GET", "/v1/models", [&] { models(request, reply); }},
      {"GET", "/health", [&] { health(reply); }},
      {"GET", "/metrics",
       [&] { text("text/plain; version=0.0.4", metrics()); }},
      {"GET", "/version",
       [&] {
         text("application/json",
              nlohmann::json{{"version", options.version}}.dump());
       }},
  };
  bool isPath = false;
  for (const Route &route : routes) {
    if (route.path != request.path &&
        !(route.path == "/v1/models" &&
          request.path.starts_with("/v1/models/")))
      continue;
    isPath = true;
    if (route.method == request.method)
      return route.run();
  }
  if (isPath)
    return sendError(
        reply, {405, "this path has another method", "", "method_not_allowed"});
  sendError(reply, {404, "there is no such path", "", "not_found"});
}

void Service::models(const HttpRequest &request,
                     const std::shared_ptr<HttpReply> &reply) {
  nlohmann::ordered_json model = {{"id", options.model},
                                  {"object", "model"},
                                  {"created", started},
                                  {"owned_by", "tessera"},
                                  {"max_model_len", engine.shape().context}};
  if (request.path != "/v1/models") {
    if (request.path.substr(std::string_view("/v1/models/").size()) !=
        options.model)
      return sendError(
          reply, {404, "there is no such model", "model", "model_not_found"});
  } else {
    model = {{"object", "list"}, {"data", {std::move(model)}}};
  }
  ++answers[200];
  // A folder's name need not be UTF-8.
  reply->send(200, "application/json",
              model.dump(-1, ' ', false,
                         nlohmann::ordered_json::error_handler_t::replace));
}

std::string Service::metrics() const {
  std::string out = engine.metrics().print();
  out += "# HELP tessera:http_responses Answers by status.\n"
         "# TYPE tessera:http_responses counter\n";
  for (const auto &[status, count] : answers)
    out += fmt::format("tessera:http_responses{{code=\"{}\"}} {}\n", status,
                       count);
  return out;
}

//===--- health -----------------------------------------------------------===//

EngineRequest Service::probe(std::shared_ptr<RequestSink> sink) const {
  EngineRequest request;
  request.prompt = {0};
  request.maxTokens = 1;
  request.sampling.temperature = 0;
  request.deadline = EngineClock::now() + std::chrono::seconds(10);
  request.sink = std::move(sink);
  return request;
}

namespace {

/// Tells whether a token came.
class ProbeSink final : public RequestSink {
public:
  explicit ProbeSink(std::function<void(bool)> tell) : tell(std::move(tell)) {}
  bool token(const TokenEvent &) override { return has = true; }
  void finished(const EngineResult &) override { tell(has); }

private:
  std::function<void(bool)> tell;
  bool has = false;
};

} // namespace

// Healthy is an engine from which a token came: within the last seconds, or
// now.
void Service::health(const std::shared_ptr<HttpReply> &reply) {
  auto answer = [this, reply](bool healthy) {
    if (!healthy)
      return sendError(
          reply, {503, engine.deathCause().value_or("no token came in time"),
                  "", "unhealthy"});
    ++answers[200];
    reply->send(200, "application/json", R"({"status":"ok"})");
  };
  if (engine.deathCause())
    return answer(false);
  bool recent = EngineClock::now() - lastToken < std::chrono::seconds(5);
  if (recent)
    return answer(true);
  auto sink = std::make_shared<ProbeSink>([this, answer](bool healthy) {
    server->post([this, answer, healthy] {
      if (healthy)
        lastToken = EngineClock::now();
      answer(healthy);
    });
  });
  if (engine.submit({probe(sink)}).outcome != Submission::Outcome::accepted)
    answer(false);
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
    return ApiError{400, tokens.message(), "messages", "invalid_value"};
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
  if (request.endpoint == Endpoint::chat)
    addChatStops(chat, tokenizer, tokens, stops);
  return stops;
}

std::optional<ApiError> Service::makeRequests(const ApiRequest &request,
                                              std::vector<EngineRequest> &to) {
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
                      request.endpoint == Endpoint::chat ? "messages"
                                                         : "prompt",
                      "invalid_value"};
    int64_t usual = request.endpoint == Endpoint::chat ? room : 16;
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
  return std::nullopt;
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
  AnswerHead head{endpoint,
                  fmt::format("{}-{:x}-{}",
                              endpoint == Endpoint::chat ? "chatcmpl" : "cmpl",
                              started, ++lastId),
                  options.model, std::time(nullptr)};
  bool logprobs = request.logprobs.has_value();
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
    return sendError(reply, {400, submission.message,
                             endpoint == Endpoint::chat ? "messages" : "prompt",
                             "invalid_value"});
  case Outcome::full:
    return sendError(reply, {429, submission.message, "", "queue_full"});
  case Outcome::closed:
    return sendError(reply, {503, submission.message, "", "shutting_down"});
  }
}

} // namespace tessera::serve
