#include "runtime/serve/Generation.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <random>
#include <utility>

#include <nlohmann/json.hpp>

namespace tessera::serve {

void Service::Generation::start(std::vector<uint64_t> given) {
  ids = std::move(given);
  if (request.background)
    return startBackground();
  reply->onGone = [weak = weak_from_this()] {
    auto self = weak.lock();
    if (!self || self->closed)
      return;
    self->cancelAll();
    self->close(499); // nginx's status of a client that disconnected
  };
  if (!request.stream)
    return;
  // Comments keep a silent stream alive.
  service.server->after(service.server->pingTime(), [weak = weak_from_this()] {
    auto self = weak.lock();
    if (self && !self->closed)
      self->beginStream();
  });
}

void Service::Generation::beginStream() {
  if (std::exchange(begun, true))
    return;
  reply->begin();
  answer->begin(*reply);
}

//===--- stored answers ---------------------------------------------------===//

void Service::Generation::startBackground() {
  std::shared_ptr<HttpReply> client = std::move(reply);
  reply = followers = std::make_shared<Followers>();
  begun = true;
  answer->begin(*reply);
  store.put({id,
             std::move(request.items),
             {},
             {},
             answer->record(),
             shared_from_this()});
  if (request.stream)
    return follow(std::move(client), -1, request.obfuscate);
  ++service.answers[200];
  client->send(200, "application/json", responseJson(*answer->record()));
}

void Service::Generation::follow(std::shared_ptr<HttpReply> to, int64_t after,
                                 bool obfuscate) {
  ++service.answers[200];
  followers->add(to, after, obfuscate,
                 eventsOf(*answer->record(), obfuscate, after));
}

void Service::Generation::cancel() {
  auto self = shared_from_this(); // the store may have the only reference
  if (closed)
    return;
  answer->record()->status = ResponseStatus::cancelled;
  cancelAll();
  close(499);
  answer->fail(*reply, choices, {});
  settle();
}

void Service::Generation::keep(std::string chat) {
  if (request.store)
    store.put({id, std::move(request.items), std::move(chat),
               std::move(request.metadata), answer->record()});
}

/// From here on a background response is like any other.
void Service::Generation::settle() {
  if (KeptAnswer *kept = store.find(id)) {
    kept->running.reset();
    store.weigh(id);
  }
}

void Service::Generation::cancelAll() {
  for (uint64_t id : ids)
    service.engine.cancel(id);
}

void Service::Generation::take(Delta delta) {
  if (delta.end)
    count(delta.choice, *delta.end);
  if (closed) // cancelled choices end as well
    return logOnceOver();
  if (delta.end && delta.end->reason != FinishReason::stop &&
      delta.end->reason != FinishReason::length)
    return fail(*delta.end);
  if (!reasoning.empty())
    findReasoning(delta);
  if (!readers.empty())
    findCalls(delta);
  if (!channels.empty())
    findChannels(delta);
  bool isNews = delta.end || !delta.text.empty() || !delta.reasoning.empty() ||
                !delta.calls.empty() || !delta.tokens.empty();
  if (isNews && !(request.stream || request.background)) {
    answer->note(delta);
  } else if (isNews) {
    beginStream();
    answer->delta(*reply, delta);
    if (closed) // the reader was too slow
      return;
  }
  WholeChoice &choice = choices[delta.choice];
  choice.text += delta.text;
  choice.reasoning += delta.reasoning;
  choice.stopped += delta.stopped;
  for (CallPiece &piece : delta.calls) {
    if (piece.index == choice.calls.size())
      choice.calls.push_back({piece.id, piece.name, {}});
    choice.calls[piece.index].arguments += piece.arguments;
  }
  if (request.returnsTokens)
    for (const ChoiceToken &token : delta.tokens)
      if (!token.isPrompt)
        choice.tokens.push_back(token.event.token);
  if (request.logprobs && (!request.stream || request.store))
    choice.logprobs.add(request.endpoint, delta.tokens, service.tokenizer);
  if (ended == choices.size())
    finish();
}

/// Nine alphanumeric characters: templates of Mistral's models expect ids of
/// nine characters.
static std::string newCallId() {
  static constexpr std::string_view digits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id(9, ' ');
  for (char &each : id)
    each = digits[random() % digits.size()];
  return id;
}

static void nameCalls(std::vector<CallPiece> &calls) {
  for (CallPiece &piece : calls)
    if (!piece.name.empty())
      piece.id = newCallId();
}

void Service::Generation::readReasoning(
    const ReasoningTags &tags, std::span<const EngineRequest> requests) {
  // The tag is the last text of a prompt, of a token for each byte at most.
  const std::size_t most = tags.open.size() + 4;
  undecided.resize(requests.size());
  for (const EngineRequest &each : requests) {
    std::vector<uint32_t> last(each.prompt.end() -
                                   long(std::min(most, each.prompt.size())),
                               each.prompt.end());
    reasoning.emplace_back(
        tags, tags.isOpenAfter(tokenizer::decode(service.tokenizer, last,
                                                 /*skipSpecial=*/false)));
  }
}

void Service::Generation::findReasoning(Delta &delta) {
  ReasoningReader &reader = reasoning[delta.choice];
  if (reader.isReasoning())
    undecided[delta.choice] += delta.generated;
  ReasoningPieces pieces = reader.push(delta.text);
  if (reader.hasBegun())
    usage.reasoning += std::exchange(undecided[delta.choice], 0);
  if (delta.end) {
    ReasoningPieces rest = reader.finish();
    pieces.reasoning += rest.reasoning;
    pieces.content += rest.content;
  }
  delta.text = std::move(pieces.content);
  delta.reasoning = std::move(pieces.reasoning);
}

void Service::Generation::findCalls(Delta &delta) {
  CallReader &reader = *readers[delta.choice];
  ToolPieces pieces = reader.push(delta.text);
  if (delta.end) {
    ToolPieces rest = reader.finish();
    pieces.content += rest.content;
    std::ranges::move(rest.calls, std::back_inserter(pieces.calls));
  }
  nameCalls(pieces.calls);
  delta.text = std::move(pieces.content);
  delta.calls = std::move(pieces.calls);
  delta.hasCalls = reader.calls() > 0;
}

/// The tokens of a header are of what it begins.
void Service::Generation::findChannels(Delta &delta) {
  using Part = ChannelReader::Part;
  ChannelReader &reader = channels[delta.choice];
  int64_t &pending = undecided[delta.choice];
  if (reader.part() == Part::reasoning)
    usage.reasoning += delta.generated;
  else if (reader.part() == Part::header)
    pending += delta.generated;
  ChannelPieces pieces = reader.push(delta.text);
  if (reader.part() == Part::reasoning)
    usage.reasoning += std::exchange(pending, 0);
  else if (reader.part() == Part::other)
    pending = 0;
  if (delta.end) {
    ChannelPieces rest = reader.finish();
    pieces.reasoning += rest.reasoning;
    pieces.content += rest.content;
    std::ranges::move(rest.calls, std::back_inserter(pieces.calls));
  }
  nameCalls(pieces.calls);
  delta.text = std::move(pieces.content);
  delta.reasoning = std::move(pieces.reasoning);
  delta.calls = std::move(pieces.calls);
  delta.hasCalls = reader.calls() > 0;
}

void Service::Generation::count(std::size_t choice,
                                const EngineResult &result) {
  choices[choice].end = result;
  ++ended;
  usage.generated += result.generatedTokens;
  // Every prompt counts once, however many choices it has.
  if (choice % std::size_t(request.n) == 0) {
    usage.prompt += result.promptTokens;
    usage.cached += result.cachedTokens;
    read += result.readTokens;
  }
}

void Service::Generation::finish() {
  auto self = shared_from_this();
  close(200);
  if (request.background) {
    answer->end(*reply, choices, usage);
    return settle();
  }
  ++service.answers[200];
  bool isChat = request.endpoint == Endpoint::chat;
  if (request.stream) {
    answer->end(*reply, choices, usage);
    return keep(isChat && request.store ? answer->whole(choices, usage) : "");
  }
  std::string body = answer->whole(choices, usage);
  keep(isChat ? body : "");
  reply->send(200, "application/json", std::move(body));
}

void Service::Generation::fail(const EngineResult &result) {
  auto self = shared_from_this();
  cancelAll();
  ApiError error{500, result.message, "", "engine_error"};
  if (result.reason == FinishReason::deadline)
    error = {504, "the request timed out", "", "timeout"};
  else if (result.reason == FinishReason::cancelled)
    error = {503, "the server is shutting down", "", "shutting_down"};
  else if (result.reason == FinishReason::form) {
    bool isTools = request.formName.empty();
    error = {400,
             fmt::format("{}: {}", isTools ? "tools" : request.formName,
                         result.message),
             isTools ? "tools" : std::string(request.formField),
             "invalid_value"};
  }
  failure = error.message;
  close(error.status);
  if (request.background) {
    answer->fail(*reply, choices, error);
    return settle();
  }
  if (!begun)
    return service.sendError(reply, error, errorForm);
  ++service.answers[error.status];
  answer->fail(*reply, choices, error);
}

void Service::Generation::close(int with) {
  closed = true;
  status = with;
  logOnceOver();
}

void Service::Generation::logOnceOver() const {
  if (ended < choices.size())
    return;
  using std::chrono::milliseconds;
  auto took =
      std::chrono::duration_cast<milliseconds>(EngineClock::now() - arrived);
  nlohmann::ordered_json line = {
      {"event", "request"},
      {"id", id},
      {"status", status},
      {"stream", request.stream},
      {"choices", choices.size()},
      {"prompt_tokens", status == 200 ? usage.prompt : read},
      {"cached_tokens", usage.cached},
      {"generated_tokens", usage.generated},
      {"ms", took.count()}};
  std::fprintf(stderr, "%s\n", line.dump().c_str());
  if (service.options.traces)
    service.options.traces->add(traced());
}

RequestTrace Service::Generation::traced() const {
  RequestTrace made;
  made.context = trace;
  made.operation =
      request.endpoint == Endpoint::completions ? "text_completion" : "chat";
  made.requestedModel = request.model;
  made.model = model;
  made.id = id;
  made.status = status;
  made.error = status == 499 ? "the client disconnected" : failure;
  made.arrived = arrived;
  made.ended = EngineClock::now();
  made.promptTokens = status == 200 ? usage.prompt : read;
  GenerationTrace &generated = made.generated.emplace();
  generated.n = request.n;
  generated.tokens = usage.generated;
  generated.cachedTokens = usage.cached;
  generated.maxTokens = request.maxTokens;
  generated.temperature = request.sampling.temperature;
  generated.topP = request.sampling.topP;
  for (const WholeChoice &choice : choices)
    if (choice.end) {
      const RequestTimes &times = choice.end->times;
      generated.choices.push_back(
          {times.arrived, times.ended, times.started, times.first,
           std::string(tessera::name(choice.end->reason))});
    }
  return made;
}

} // namespace tessera::serve
