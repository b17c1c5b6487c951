#include "runtime/eval/EngineModel.h"
#include "runtime/infer/engine/Scheduler.h"
#include "runtime/serve/Choice.h"
#include "runtime/support/Text.h"

#include <algorithm>

namespace tessera::eval {
namespace {

constexpr std::string_view kSpaces = " \t\n\v\f\r";

/// Ends of requests, and the first error of them.
class EndSink : public RequestSink {
public:
  explicit EndSink(Status &failure) : failure(failure) {}
  bool token(const TokenEvent &) override { return true; }
  void finished(const EngineResult &result) override {
    if (failure.ok() && result.reason == FinishReason::error)
      failure = Status::error("{}", result.message);
  }

private:
  Status &failure;
};

/// Sums the logprobs of the prompt's tokens from `first` on.
class ScoreSink final : public EndSink {
public:
  ScoreSink(Status &failure, std::size_t first, Likelihood &to)
      : EndSink(failure), first(first), to(to) {}
  void scored(std::size_t position, const TokenEvent &event) override {
    if (position < first)
      return;
    to.logprob += double(event.logprobs.chosen);
    ++to.tokens;
  }

private:
  std::size_t first;
  Likelihood &to;
};

class TextSink final : public EndSink {
public:
  TextSink(Status &failure, const tokenizer::Tokenizer &tokenizer,
           const std::vector<std::string> &stops, std::string &to)
      : EndSink(failure), decoder(tokenizer, /*skipSpecial=*/true),
        matcher(stops), to(to) {}
  bool token(const TokenEvent &event) override {
    if (event.isStop)
      return true;
    to += matcher.push(decoder.push(uint32_t(event.token)));
    return !matcher.found();
  }
  void finished(const EngineResult &result) override {
    to += matcher.push(decoder.finish());
    to += matcher.finish();
    EndSink::finished(result);
  }

private:
  tokenizer::StreamDecoder decoder;
  serve::StopMatcher matcher;
  std::string &to;
};

EngineRequest scoring(std::vector<int32_t> prompt,
                      std::shared_ptr<RequestSink> sink) {
  EngineRequest request;
  request.prompt = std::move(prompt);
  request.maxTokens = 0;
  request.logprobs = 0;
  request.scoresPrompt = true;
  request.sink = std::move(sink);
  return request;
}

std::vector<serve::ChatMessage> messagesOf(const Conversation &chat) {
  std::vector<serve::ChatMessage> messages;
  for (const Message &message : chat)
    messages.push_back({message.role, message.content});
  return messages;
}

} // namespace

std::vector<Window> rollingWindows(int64_t tokens, int64_t window) {
  std::vector<Window> windows;
  for (int64_t done = 0; done < tokens;) {
    const int64_t end = std::min(tokens, done + window);
    windows.push_back(
        {done == 0 ? -1 : std::max<int64_t>(end - window - 1, -1), done, end});
    done = end;
  }
  return windows;
}

EngineModel::EngineModel(PagedModel &model,
                         const tokenizer::Tokenizer &tokenizer,
                         EngineModelOptions options)
    : model(model), tokenizer(tokenizer), encoder(tokenizer),
      options(std::move(options)) {}

/// Without what would follow the prompt.
std::vector<int32_t> EngineModel::framed(std::string_view text) {
  std::vector<int32_t> ids(tokenizer.framePrefix().begin(),
                           tokenizer.framePrefix().end());
  for (uint32_t id : encoder.encode(text))
    ids.push_back(int32_t(id));
  return ids;
}

StatusOr<std::vector<int32_t>> EngineModel::documentStart() const {
  auto prefix = tokenizer.framePrefix();
  if (!prefix.empty())
    return std::vector<int32_t>(prefix.begin(), prefix.end());
  if (auto end = tokenizer.documentEnd())
    return std::vector<int32_t>{int32_t(*end)};
  if (options.startToken)
    return std::vector<int32_t>{*options.startToken};
  return Status::error("neither the tokenizer nor the model has a "
                       "beginning-of-sequence token to predict the first token "
                       "from");
}

Status EngineModel::add(std::vector<EngineRequest> &requests,
                        EngineRequest request, const std::string &where) const {
  request.adapter = options.adapter;
  if (Status status = checkLength(int64_t(request.prompt.size()),
                                  request.maxTokens, model.shape());
      !status.ok())
    return Status::error("{}: {}; shorten it, or raise the context (--set "
                         "inference.context)",
                         where, status.message());
  if (Status status = checkRequest(request, model.shape()); !status.ok())
    return Status::error("{}: {}", where, status.message());
  requests.push_back(std::move(request));
  return Status::success();
}

Status EngineModel::run(std::vector<EngineRequest> requests) {
  SchedulerOptions settings;
  settings.choices = int64_t(tokenizer.vocabSize());
  Scheduler scheduler(model, settings);
  uint64_t id = 0;
  for (EngineRequest &request : requests)
    scheduler.add(++id, std::move(request), EngineClock::now());
  while (!scheduler.idle())
    TESSERA_RETURN_IF_ERROR(scheduler.step());
  return Status::success();
}

StatusOr<EngineModel::ScoredTokens>
EngineModel::tokensOf(const Continuation &input) {
  const std::size_t kept = input.context.find_last_not_of(kSpaces) + 1;
  const std::string context = input.context.substr(0, kept);
  std::vector<int32_t> before = framed(context);
  if (!before.empty() && !context.empty())
    return ScoredTokens{framed(input.context + input.text), before.size()};
  auto start = documentStart();
  if (!start.ok())
    return start.status();
  ScoredTokens tokens{*start, start->size()};
  for (uint32_t token : encoder.encode(input.context + input.text))
    tokens.whole.push_back(int32_t(token));
  return tokens;
}

/// Like a text: white space that ends the template's part counts as the
/// continuation's.
StatusOr<EngineModel::ScoredTokens>
EngineModel::chatTokensOf(const Continuation &input) {
  auto parts = options.chat->render(messagesOf(input.chat), {}, {});
  if (!parts.ok())
    return Status::error("{}: {}", input.where, parts.message());
  if (parts->empty() || parts->back().isUsers)
    parts->emplace_back();
  std::string &last = parts->back().text;
  const std::string ends = last;
  last.resize(last.find_last_not_of(kSpaces) + 1);
  auto before = serve::partTokens(*parts, tokenizer, encoder);
  last = ends + input.text;
  auto whole = serve::partTokens(*parts, tokenizer, encoder);
  for (const auto *each : {&before, &whole})
    if (!each->ok())
      return Status::error("{}: {}", input.where, each->message());
  return ScoredTokens{whole.take(), before->size()};
}

StatusOr<std::vector<Likelihood>>
EngineModel::scoreContinuations(std::span<const Continuation> inputs) {
  Status failure;
  std::vector<Likelihood> scores(inputs.size());
  std::vector<EngineRequest> requests;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Continuation &input = inputs[i];
    auto tokens = input.chat.empty() ? tokensOf(input) : chatTokensOf(input);
    if (!tokens.ok())
      return tokens.status();
    const std::size_t first = tokens->context;
    if (tokens->whole.size() <= first)
      return Status::error("{}: {} has no token of its own after the prompt; "
                           "change the prompt or the delimiter",
                           input.where, quote(input.text));
    TESSERA_RETURN_IF_ERROR(
        add(requests,
            scoring(std::move(tokens->whole),
                    std::make_shared<ScoreSink>(failure, first, scores[i])),
            input.where));
  }
  TESSERA_RETURN_IF_ERROR(run(std::move(requests)));
  if (!failure.ok())
    return failure;
  return scores;
}

StatusOr<std::vector<Likelihood>>
EngineModel::scoreDocuments(std::span<const Document> inputs, int64_t window) {
  auto start = documentStart();
  if (!start.ok())
    return start.status();
  // A window's last token is predicted, not read, but the engine has room for
  // prompts of a context alone.
  const int64_t most = model.shape().context - int64_t(start->size());
  if (most < 1 || window > most)
    return Status::error(
        "a window of {} tokens does not fit the context of {}; "
        "the longest has {}",
        window, model.shape().context, most);
  if (window == 0)
    window = most;
  Status failure;
  std::vector<Likelihood> scores(inputs.size());
  std::vector<EngineRequest> requests;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto tokens = encoder.encode(inputs[i].text);
    for (const Window &part : rollingWindows(int64_t(tokens.size()), window)) {
      std::vector<int32_t> prompt;
      if (part.begin < 0)
        prompt = *start;
      prompt.insert(prompt.end(),
                    tokens.begin() + std::max<int64_t>(part.begin, 0),
                    tokens.begin() + part.end);
      const auto first = prompt.size() - std::size_t(part.end - part.scored);
      TESSERA_RETURN_IF_ERROR(
          add(requests,
              scoring(std::move(prompt),
                      std::make_shared<ScoreSink>(failure, first, scores[i])),
              inputs[i].where));
    }
  }
  TESSERA_RETURN_IF_ERROR(run(std::move(requests)));
  if (!failure.ok())
    return failure;
  return scores;
}

StatusOr<std::vector<int32_t>> EngineModel::tokensOf(const Prompt &prompt) {
  if (!prompt.chat.empty()) {
    auto tokens = serve::chatTokens(*options.chat, messagesOf(prompt.chat), {},
                                    tokenizer, encoder);
    if (!tokens.ok())
      return Status::error("{}: {}", prompt.where, tokens.message());
    return tokens;
  }
  auto tokens = framed(prompt.text);
  return tokens.empty() ? documentStart() : tokens;
}

StatusOr<std::vector<std::string>>
EngineModel::generate(std::span<const Prompt> prompts,
                      const GenerationLimits &limits) {
  Status failure;
  std::vector<std::string> outputs(prompts.size());
  std::vector<EngineRequest> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    auto tokens = tokensOf(prompts[i]);
    if (!tokens.ok())
      return tokens.status();
    EngineRequest request;
    request.prompt = tokens.take();
    request.sampling.temperature = 0;
    request.maxTokens = limits.maxTokens;
    request.stopTokens = options.endTokens;
    std::vector<std::string> stops = limits.stop;
    if (!prompts[i].chat.empty())
      serve::addChatStops(*options.chat, tokenizer, request.stopTokens, stops);
    request.sink =
        std::make_shared<TextSink>(failure, tokenizer, stops, outputs[i]);
    TESSERA_RETURN_IF_ERROR(
        add(requests, std::move(request), prompts[i].where));
  }
  TESSERA_RETURN_IF_ERROR(run(std::move(requests)));
  if (!failure.ok())
    return failure;
  return outputs;
}

} // namespace tessera::eval
