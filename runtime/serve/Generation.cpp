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
  reply->onGone = [weak = weak_from_this()] {
    auto self = weak.lock();
    if (!self || self->closed)
      return;
    self->closed = true;
    self->cancelAll();
    self->log(499); // nginx's number for a client that left
  };
}

void Service::Generation::cancelAll() {
  for (uint64_t id : ids)
    service.engine.cancel(id);
}

void Service::Generation::take(Delta delta) {
  if (closed)
    return;
  if (delta.end && delta.end->reason != FinishReason::stop &&
      delta.end->reason != FinishReason::length)
    return fail(*delta.end);
  if (!readers.empty())
    findCalls(delta);
  bool isNews = delta.end || !delta.text.empty() || !delta.calls.empty() ||
                !delta.tokens.empty();
  if (request.stream && isNews) {
    if (!std::exchange(begun, true)) {
      reply->begin();
      answer->begin(*reply);
    }
    answer->delta(*reply, delta);
    if (closed) // a reader that is too slow
      return;
  }
  WholeChoice &choice = choices[delta.choice];
  choice.text += delta.text;
  for (CallPiece &piece : delta.calls) {
    if (piece.index == choice.calls.size())
      choice.calls.push_back({piece.id, piece.name, {}});
    choice.calls[piece.index].arguments += piece.arguments;
  }
  if (!request.stream)
    choice.logprobs.add(request.endpoint, delta.tokens, service.tokenizer);
  if (delta.end)
    takeEnd(delta);
}

/// Nine letters and digits, as the templates of Mistral's models want them.
static std::string newCallId() {
  static constexpr std::string_view digits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id(9, ' ');
  for (char &each : id)
    each = digits[random() % digits.size()];
  return id;
}

void Service::Generation::findCalls(Delta &delta) {
  ToolCallReader &reader = readers[delta.choice];
  ToolPieces pieces = reader.push(delta.text);
  if (delta.end) {
    ToolPieces rest = reader.finish();
    pieces.content += rest.content;
    std::ranges::move(rest.calls, std::back_inserter(pieces.calls));
  }
  for (CallPiece &piece : pieces.calls)
    if (!piece.name.empty())
      piece.id = newCallId();
  delta.text = std::move(pieces.content);
  delta.calls = std::move(pieces.calls);
  delta.hasCalls = reader.calls() > 0;
}

void Service::Generation::takeEnd(const Delta &delta) {
  choices[delta.choice].end = delta.end;
  usage.generated += delta.end->generatedTokens;
  // Every prompt counts once, however many choices it has.
  if (delta.choice % std::size_t(request.n) == 0) {
    usage.prompt += delta.end->promptTokens;
    usage.cached += delta.end->cachedTokens;
  }
  if (++ended == choices.size())
    finish();
}

void Service::Generation::finish() {
  closed = true;
  log(200);
  ++service.answers[200];
  if (request.stream)
    return answer->end(*reply, choices, usage);
  reply->send(200, "application/json", answer->whole(choices, usage));
}

void Service::Generation::fail(const EngineResult &result) {
  closed = true;
  cancelAll();
  ApiError error{500, result.message, "", "engine_error"};
  if (result.reason == FinishReason::deadline)
    error = {504, "the request took too long and was given up", "", "timeout"};
  else if (result.reason == FinishReason::cancelled)
    error = {503, "the server is shutting down", "", "shutting_down"};
  log(error.status);
  if (!begun)
    return service.sendError(reply, error);
  ++service.answers[error.status];
  answer->fail(*reply, choices, error);
}

void Service::Generation::log(int status) const {
  using std::chrono::milliseconds;
  auto took =
      std::chrono::duration_cast<milliseconds>(EngineClock::now() - arrived);
  nlohmann::ordered_json line = {{"event", "request"},
                                 {"id", id},
                                 {"status", status},
                                 {"stream", request.stream},
                                 {"choices", choices.size()},
                                 {"prompt_tokens", usage.prompt},
                                 {"cached_tokens", usage.cached},
                                 {"generated_tokens", usage.generated},
                                 {"ms", took.count()}};
  std::fprintf(stderr, "%s\n", line.dump().c_str());
}

} // namespace tessera::serve
