#include "runtime/serve/Service.h"
#include "runtime/serve/FillIn.h"
#include "runtime/serve/Generation.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include <fmt/format.h>

namespace tessera::serve {

EngineRequest probeRequest(std::shared_ptr<RequestSink> sink) {
  EngineRequest request;
  request.prompt = {0};
  request.maxTokens = 1;
  request.sampling.temperature = 0;
  request.sink = std::move(sink);
  return request;
}

namespace {

/// Only waits for the end; the engine's metrics show whether a token was
/// generated.
class Probe final : public RequestSink {
public:
  explicit Probe(std::function<void()> done) : done(std::move(done)) {}
  bool token(const TokenEvent &) override { return true; }
  void finished(const EngineResult &) override { done(); }

private:
  std::function<void()> done;
};

} // namespace

static HealthProbe probeOf(Engine &engine) {
  return
      [&engine](EngineClock::time_point deadline, std::function<void()> done) {
        EngineRequest request =
            probeRequest(std::make_shared<Probe>(std::move(done)));
        request.deadline = deadline;
        return engine.submit({std::move(request)}).outcome ==
               Submission::Outcome::accepted;
      };
}

Service::Service(Engine &engine, const tokenizer::Tokenizer &tokenizer,
                 const ChatRenderer &chat, ServiceOptions options)
    : CommonService(ModelKind::generates, engine, probeOf(engine),
                    std::move(options)),
      engine(engine), tokenizer(tokenizer), chat(chat), encoder(tokenizer),
      forms(tokenizer) {
  // Each key has its own part of the limits, so no key can evict another's
  // answers.
  const std::size_t keys =
      std::max<std::size_t>(1, this->options.apiKeys.size());
  StoreLimits share = this->options.store;
  share.count = (share.count + keys - 1) / keys;
  share.bytes /= keys;
  for (std::size_t i = 0; i < keys; ++i)
    stores.emplace_back(share);
  if (this->options.training)
    this->options.training->attach(*this);
}

std::string Service::engineMetrics() const {
  return engine.metrics().print() + storeMetrics(stores) +
         adapterMetrics(*options.adapters) + traceMetrics();
}

//===--- stored answers ---------------------------------------------------===//

AnswerStore &Service::storeOf(const HttpRequest &request) {
  return stores[keyOf(request)];
}

std::optional<ApiError> Service::checkStore(ApiRequest &request,
                                            const AnswerStore &store) const {
  if (store.keepsAny() || !request.store)
    return std::nullopt;
  if (request.endpoint == Endpoint::responses && !request.background) {
    request.store = false; // `store` is only the default
    return std::nullopt;
  }
  return ApiError{400, "the server stores no responses (--stored-answers 0)",
                  request.background ? "background" : "store", "not_supported"};
}

void Service::sendEvents(KeptAnswer &kept, const StoredQuery &query,
                         const Reply &reply) {
  int64_t after = query.startingAfter.value_or(-1);
  if (auto running = kept.running)
    return running->follow(reply, after, query.obfuscate);
  std::vector<ServerEvent> events =
      eventsOf(*kept.response, query.obfuscate, after);
  ++answers[200];
  reply->begin();
  reply->end(events);
}

bool Service::isTooMuch(RouteId route, const std::string &id,
                        const HttpRequest &request) {
  // For clients that request a stored answer repeatedly and never read it.
  if (!server->isPiledUp(keyOf(request), stores.size()))
    return false;
  if (route == RouteId::deleteResponse || route == RouteId::deleteChat)
    return false;
  if (route != RouteId::cancelResponse)
    return true;
  const KeptAnswer *kept = storeOf(request).find(id);
  return !kept || !kept->running; // once
}

void Service::askStored(const RouteMatch &match, const HttpRequest &request,
                        const Reply &reply) {
  RouteId route = match.route->id;
  std::string id = percentDecoded(match.rest);
  if (isTooMuch(route, id, request))
    return sendError(
        reply, {429, "too many sent bytes are unread", "", "unread_answers"});
  auto query = parseQuery(route, request.query);
  if (const auto *error = std::get_if<ApiError>(&query))
    return sendError(reply, *error);
  const auto &asked = std::get<StoredQuery>(query);
  AnswerStore &store = storeOf(request);
  if (asked.stream) {
    KeptAnswer *kept = store.find(id);
    return kept && kept->response ? sendEvents(*kept, asked, reply)
                                  : sendError(reply, notStored(route, id));
  }
  auto answer = answerStored(route, id, asked, request.body,
                             isServed(asked.model), store);
  if (const auto *error = std::get_if<ApiError>(&answer))
    return sendError(reply, *error);
  sendJson(reply, std::move(std::get<std::string>(answer)));
}

//===--- generation -------------------------------------------------------===//

std::vector<std::string> Service::stopsOf(const ApiRequest &request,
                                          std::vector<int32_t> &tokens) const {
  std::vector<std::string> stops = request.stop;
  if (request.ignoreEnd)
    return stops;
  tokens = options.endTokens;
  if (auto end = tokenizer.documentEnd(); end && tokens.empty())
    tokens.push_back(int32_t(*end));
  // Filling a gap ends where the model would begin another.
  if (auto fill = fillInTokens(tokenizer); fill && !request.suffix.empty())
    for (std::string_view each : {fill->open, fill->gap, fill->close})
      tokens.push_back(int32_t(*tokenizer.addedToken(each)));
  if (request.endpoint != Endpoint::completions)
    addChatStops(chat, tokenizer, tokens, stops);
  return stops;
}

std::vector<int32_t>
Service::specialTokens(std::span<const std::string_view> tags) const {
  std::vector<int32_t> tokens;
  for (std::string_view tag : tags)
    if (auto id = tokenizer.addedToken(tag); id && tokenizer.token(*id).special)
      tokens.push_back(int32_t(*id));
  return tokens;
}

std::vector<int32_t> Service::callTags() const {
  const ToolFormat *format = chat.toolFormat();
  return format ? specialTokens(format->tags()) : std::vector<int32_t>();
}

const ReasoningTags *Service::reasoningOf(const ApiRequest &request) const {
  if (request.endpoint == Endpoint::completions)
    return nullptr;
  // Structured output is constrained from the first token, so there is no
  // reasoning before it; calls of a model that decides are not.
  const bool isFree = !request.form || (request.formName.empty() &&
                                        request.toolUse == ToolUse::automatic);
  return isFree ? chat.reasoningTags() : nullptr;
}

std::optional<ApiError> Service::checkTools(const ApiRequest &request) const {
  bool hasCalls = std::ranges::any_of(request.messages, [](const auto &each) {
    return !each.calls.empty() || !each.callId.empty();
  });
  if ((!request.mayCall() && !hasCalls) || chat.hasTools())
    return std::nullopt;
  return ApiError{400,
                  "the model's chat template has no tools, or writes their "
                  "calls in a way that is not supported",
                  hasCalls ? std::string(inputField(request)) : "tools",
                  "not_supported"};
}

std::optional<ApiError> Service::prepareTools(ApiRequest &request) const {
  if (auto error = checkTools(request))
    return error;
  if (chat.hasChannels())
    return openChannel(request);
  if (!needsToolForm(request))
    return std::nullopt;
  auto form = makeToolForm(request, *chat.toolFormat(), callTags().empty());
  if (!form.ok())
    return ApiError{400, form.message(), "tools", "invalid_value"};
  request.form = form.take();
  return std::nullopt;
}

void Service::post(const HttpRequest &http, Endpoint endpoint,
                   const Reply &reply) {
  auto parsed = parseApiRequest(http.body, endpoint, options.sampling);
  std::optional<ApiError> error;
  if (const auto *unread = std::get_if<ApiError>(&parsed))
    error = *unread;
  else
    error = answer(std::move(std::get<ApiRequest>(parsed)), http, reply);
  if (error)
    sendError(reply, *error, errorFormOf(http.path));
}

std::optional<ApiError> Service::answer(ApiRequest request,
                                        const HttpRequest &http,
                                        const Reply &reply) {
  if (!request.model.empty() && !isServed(request.model))
    return otherModel();
  if (request.priority != 0 && !options.priorities)
    return ApiError{400,
                    "the server does not order requests by priority; start it "
                    "with --request-priorities",
                    "priority", "not_supported"};
  if (request.endpoint == Endpoint::tokenize)
    return tokenize(request, reply);
  if (request.endpoint == Endpoint::detokenize)
    return detokenize(request, reply);
  if (auto error = setThinking(request))
    return error;
  if (auto error = setEffort(request))
    return error;
  if (request.endpoint == Endpoint::countTokens)
    return countTokens(request, reply);
  AnswerStore &store = storeOf(http);
  if (auto error = checkStore(request, store))
    return error;
  if (auto error = goOn(request, store))
    return error;
  if (auto error = checkRoom(request, store))
    return error;
  if (auto error = prepareTools(request))
    return error;
  return generate(std::move(request), http, store, reply);
}

std::vector<int32_t> Service::shownTokens(const ApiRequest &request,
                                          const ReasoningTags *reasoning,
                                          bool inChannels) const {
  if (inChannels)
    return specialTokens(channelTags());
  std::vector<int32_t> shown;
  if (request.mayCall())
    shown = callTags();
  if (reasoning)
    std::ranges::copy(specialTokens({{reasoning->open, reasoning->close}}),
                      std::back_inserter(shown));
  return shown;
}

/// Why the engine did not accept requests; nothing if it did.
static std::optional<ApiError> errorOf(const Submission &submission,
                                       Endpoint endpoint) {
  using Outcome = Submission::Outcome;
  switch (submission.outcome) {
  case Outcome::accepted:
    return std::nullopt;
  case Outcome::invalid:
    return ApiError{400, submission.message, std::string(inputField(endpoint)),
                    "invalid_value"};
  case Outcome::full:
    return ApiError{429, submission.message, "", "queue_full"};
  case Outcome::closed:
    return ApiError{503, submission.message, "", "shutting_down"};
  }
  return std::nullopt;
}

std::optional<ApiError> Service::generate(ApiRequest request,
                                          const HttpRequest &http,
                                          AnswerStore &store,
                                          const Reply &reply) {
  const Endpoint endpoint = request.endpoint;
  std::vector<EngineRequest> requests;
  std::vector<Echo> echoes;
  if (auto error = makeRequests(request, requests, echoes))
    return error;
  // Generation may take long, and these are not read again.
  request.messages = {};
  request.prompts = {};
  std::vector<int32_t> stopTokens;
  std::vector<std::string> stops = stopsOf(request, stopTokens);
  Adapters::Entry *adapter = options.adapters->find(request.model);
  AnswerHead head{newAnswerId(endpoint), adapter ? adapter->name : name(),
                  std::time(nullptr), int64_t(requests.front().prompt.size())};
  numberItems(request, head.id);
  const bool returnsTokens = request.returnsTokens,
             keepsTokens = request.logprobs || returnsTokens;
  const ReasoningTags *reasoning = reasoningOf(request);
  std::vector<ChannelReader> channels = channelsOf(request, requests);
  const std::vector<int32_t> shown =
      shownTokens(request, reasoning, !channels.empty());
  if (request.form)
    for (EngineRequest &each : requests)
      each.guide = forms.guide(*request.form, stopTokens);
  const auto slot = adapter ? adapter->slot : nullptr;
  if (adapter)
    ++adapter->requests;
  auto generation = std::make_shared<Generation>(
      *this, store, std::move(request), std::move(head), http, reply,
      requests.size());
  if (reasoning)
    generation->readReasoning(*reasoning, requests);
  if (!channels.empty())
    generation->readChannels(std::move(channels));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].stopTokens = stopTokens;
    requests[i].adapter = slot;
    requests[i].tenant = keyOf(http);
    if (returnsTokens)
      generation->keepPrompt(i, requests[i].prompt);
    requests[i].sink = std::make_shared<Choice>(
        tokenizer, stops, i, keepsTokens, shown,
        [this, generation](Delta delta) {
          server->post([generation, delta = std::move(delta)]() mutable {
            generation->take(std::move(delta));
          });
        },
        std::move(echoes[i]));
  }
  Submission submission = engine.submit(std::move(requests));
  auto error = errorOf(submission, endpoint);
  if (!error)
    generation->start(std::move(submission.ids));
  return error;
}

} // namespace tessera::serve
