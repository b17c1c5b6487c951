#include "runtime/serve/Service.h"
#include "runtime/serve/Generation.h"

#include <algorithm>
#include <ctime>
#include <random>

#include <fmt/format.h>

namespace tessera::serve {

Service::Service(Engine &engine, const tokenizer::Tokenizer &tokenizer,
                 const ChatRenderer &chat, ServiceOptions options)
    : CommonService(ModelKind::generates, std::move(options)), engine(engine),
      tokenizer(tokenizer), chat(chat), encoder(tokenizer), forms(tokenizer),
      health(engine, this->options.health) {}

void Service::checkHealth(const Reply &reply) {
  health.ask(*server, [this, reply](const std::string &problem) {
    if (!problem.empty())
      return sendError(reply, {503, problem, "", "unhealthy"});
    sendJson(reply, R"({"status":"ok"})");
  });
}

std::string Service::engineMetrics() const { return engine.metrics().print(); }

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
  std::span<const Tool> tools;
  if (request.mayCall())
    tools = request.tools;
  auto tokens = chatTokens(chat, request.messages, tools, tokenizer, encoder);
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
  case Endpoint::embeddings: // has no ids
    break;
  }
  return "";
}

std::vector<int32_t> Service::callTags() const {
  std::vector<int32_t> tags;
  if (const ToolFormat *format = chat.toolFormat())
    for (std::string_view tag : {format->open, format->close})
      if (auto id = tokenizer.addedToken(tag);
          id && tokenizer.token(*id).special)
        tags.push_back(int32_t(*id));
  return tags;
}

std::optional<ApiError> Service::prepareTools(ApiRequest &request) const {
  bool hasCalls = std::ranges::any_of(request.messages, [](const auto &each) {
    return !each.calls.empty() || !each.callId.empty();
  });
  const ToolFormat *format = chat.toolFormat();
  const char *param = hasCalls ? "messages" : "tools";
  if ((request.mayCall() || hasCalls) && !format)
    return ApiError{400,
                    "the model's chat template knows no tools, or writes their "
                    "calls in a way that is not served",
                    param, "not_supported"};
  if (!needsToolForm(request))
    return std::nullopt;
  auto form = makeToolForm(request, *format, callTags().empty());
  if (!form.ok())
    return ApiError{400, form.message(), "tools", "invalid_value"};
  request.form = form.take();
  return std::nullopt;
}

void Service::post(const HttpRequest &http, Endpoint endpoint,
                   const Reply &reply) {
  auto parsed = parseApiRequest(http.body, endpoint, options.sampling);
  if (const auto *error = std::get_if<ApiError>(&parsed))
    return sendError(reply, *error);
  auto &request = std::get<ApiRequest>(parsed);
  if (!isServed(request.model))
    return sendError(reply, otherModel());
  if (auto error = prepareTools(request))
    return sendError(reply, *error);
  std::vector<EngineRequest> requests;
  if (auto error = makeRequests(request, requests))
    return sendError(reply, *error);
  std::vector<int32_t> stopTokens;
  std::vector<std::string> stops = stopsOf(request, stopTokens);
  AnswerHead head{
      fmt::format("{}{:x}-{}", idPrefix(endpoint), started, ++lastId), name(),
      std::time(nullptr)};
  bool logprobs = request.logprobs.has_value();
  std::vector<int32_t> shown;
  if (request.mayCall())
    shown = callTags();
  if (request.form)
    for (EngineRequest &each : requests)
      each.guide = forms.guide(*request.form, stopTokens);
  auto generation = std::make_shared<Generation>(
      *this, std::move(request), std::move(head), reply, requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].stopTokens = stopTokens;
    requests[i].sink = std::make_shared<Choice>(
        tokenizer, stops, i, logprobs, shown, [this, generation](Delta delta) {
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
