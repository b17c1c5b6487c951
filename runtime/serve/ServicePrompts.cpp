// Turns requests into prompts: strings and messages become tokens that fit the
// context.
#include "runtime/serve/FillIn.h"
#include "runtime/serve/Logprobs.h"
#include "runtime/serve/Service.h"

#include <algorithm>
#include <iterator>
#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tessera::serve {

/// The tokens of the prompt itself without the frame of the tokenizer; with a
/// suffix, those between the tokens of `fill`. Nothing if they cannot be found.
std::optional<Echo> Service::echoOf(const std::string &text,
                                    std::span<const int32_t> tokens,
                                    const FillInTokens *fill) {
  auto begin = tokens.begin(), end = tokens.end();
  if (fill) {
    auto find = [&](std::string_view token) {
      return std::find(begin, end, int32_t(*tokenizer.addedToken(token)));
    };
    begin = find(fill->open);
    begin += begin != end;
    end = find(fill->gap);
  } else {
    auto own = encoder.encode(text);
    begin = std::search(begin, end, own.begin(), own.end(),
                        [](int32_t a, uint32_t b) { return a == int32_t(b); });
    if (begin == end && !own.empty())
      return std::nullopt;
    end = begin + long(own.size());
  }
  Echo echo;
  echo.showsSpecial = true;
  echo.begin = std::size_t(begin - tokens.begin());
  echo.tokens.assign(begin, end);
  return echo;
}

std::optional<ApiError> Service::makeTokens(const PromptInput &prompt,
                                            const ApiRequest &request,
                                            Prompt &to) {
  std::optional<FillInTokens> fill;
  if (!request.suffix.empty())
    fill = fillInTokens(tokenizer);
  if (!request.suffix.empty() && !fill)
    return ApiError{
        400,
        "suffix is not supported: the model's tokenizer has no tokens "
        "for fill-in-the-middle; leave it out",
        "suffix", "not_supported"};
  if (const auto *tokens = std::get_if<std::vector<int32_t>>(&prompt)) {
    to.tokens = *tokens;
    if (request.echo)
      to.echo.tokens = *tokens;
  } else {
    const auto &text = std::get<std::string>(prompt);
    std::vector<uint32_t> ids = encoder.encodeFramed(
        request.suffix.empty() ? text : fill->prompt(text, request.suffix));
    to.tokens.assign(ids.begin(), ids.end());
    if (request.echo) {
      auto echo =
          echoOf(text, to.tokens, request.suffix.empty() ? nullptr : &*fill);
      if (!echo)
        return ApiError{400,
                        "echo is not supported for this prompt: its tokens "
                        "change when the tokenizer frames it; give the prompt "
                        "as tokens",
                        "echo", "not_supported"};
      to.echo = std::move(*echo);
    }
  }
  if (!to.tokens.empty())
    return std::nullopt;
  // An empty prompt starts a document.
  std::optional<int32_t> start = options.startToken;
  if (auto end = tokenizer.documentEnd())
    start = int32_t(*end);
  if (!start)
    return ApiError{400,
                    "the prompt is empty, and neither the tokenizer nor the "
                    "model has a beginning-of-sequence token",
                    "prompt", "invalid_value"};
  to.tokens.push_back(*start);
  return std::nullopt;
}

/// With `dropsOldest`: the instructions and as many of the last messages as
/// fit, beginning with a user's message.
StatusOr<std::vector<int32_t>> Service::chatPrompt(const ApiRequest &request) {
  std::span<const Tool> tools;
  if (request.mayCall())
    tools = request.tools;
  std::vector<ChatMessage> messages = request.messages;
  auto tokens =
      chatTokens(chat, messages, tools, tokenizer, encoder, request.templated);
  if (!request.dropsOldest || !tokens.ok())
    return tokens;
  const std::size_t first = request.instructions ? 1 : 0;
  std::vector<std::size_t> starts;
  for (std::size_t i = first + 1; i < messages.size(); ++i)
    if (messages[i].role == "user")
      starts.push_back(i);
  const int64_t most = engine.shape().context - request.maxTokens.value_or(1) -
                       int64_t(encoder.encode(request.opening).size());
  auto isTooLong = [&] { return int64_t(tokens->size()) > most; };
  // Binary search of the fewest dropped messages in [low, high). Messages that
  // alone exceed the context are not rendered: a chat may be far longer than
  // the context.
  std::size_t low = starts.size(), high = low;
  std::vector<uint32_t> content;
  for (std::size_t i = messages.size(); isTooLong() && i-- > first + 1;) {
    encoder.encode(messages[i].content, tokenizer::SpecialText::Plain, content);
    if (int64_t(content.size()) > most)
      break;
    if (low > 0 && starts[low - 1] == i)
      --low;
  }
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    messages.assign(request.messages.begin(),
                    request.messages.begin() + long(first));
    messages.insert(messages.end(),
                    request.messages.begin() + long(starts[middle]),
                    request.messages.end());
    auto shorter = chatTokens(chat, messages, tools, tokenizer, encoder,
                              request.templated);
    if (!shorter.ok())
      return shorter;
    const bool fits = int64_t(shorter->size()) <= most;
    if (fits || isTooLong())
      tokens = std::move(shorter);
    (fits ? high : low) = fits ? middle : middle + 1;
  }
  return tokens;
}

/// Sets a variable of the template, unless the request does.
template <typename Value>
static void setVariable(ApiRequest &request, std::string_view name,
                        const Value &value) {
  std::string &variables = request.templated.variables;
  auto all =
      nlohmann::ordered_json::parse(variables.empty() ? "{}" : variables);
  if (!all.contains(name))
    all[std::string(name)] = value;
  variables = all.dump();
}

// Qwen3, GLM-4.5 and SmolLM3 read the first, DeepSeek-V3.1 and Granite the
// second.
std::optional<ApiError> Service::setThinking(ApiRequest &request) const {
  if (!request.thinks)
    return std::nullopt;
  if (!chat.reasoningTags() && !chat.hasChannels()) {
    if (!*request.thinks)
      return std::nullopt;
    return ApiError{400,
                    "thinking is not supported: the model's chat template has "
                    "no reasoning; leave it out",
                    "thinking", "not_supported"};
  }
  for (const char *name : {"enable_thinking", "thinking"})
    setVariable(request, name, *request.thinks);
  return std::nullopt;
}

// gpt-oss reads it.
std::optional<ApiError> Service::setEffort(ApiRequest &request) const {
  constexpr std::string_view variable = "reasoning_effort";
  if (request.effort.empty())
    return std::nullopt;
  if (chat.mayRead(variable)) {
    setVariable(request, variable, request.effort);
    return std::nullopt;
  }
  if (request.effort == "none" || request.effort == "minimal")
    return std::nullopt;
  return ApiError{400,
                  "the effort of reasoning must be none or minimal: the "
                  "model's chat template does not read reasoning_effort",
                  request.endpoint == Endpoint::responses ? "reasoning"
                                                          : "reasoning_effort",
                  "not_supported"};
}

std::optional<ApiError> Service::makePrompts(const ApiRequest &request,
                                             std::vector<Prompt> &to) {
  for (const PromptInput &prompt : request.prompts)
    if (auto found = makeTokens(prompt, request, to.emplace_back()))
      return found;
  if (request.endpoint == Endpoint::completions)
    return std::nullopt;
  if (!request.templated.variables.empty())
    if (Status may = chat.checkVariables(request.templated.variables);
        !may.ok())
      return ApiError{400, may.message(), "chat_template_kwargs",
                      "invalid_value"};
  auto tokens = chatPrompt(request);
  if (!tokens.ok())
    return ApiError{400, tokens.message(), std::string(inputField(request)),
                    "invalid_value"};
  to.push_back({tokens.take(), {}});
  std::ranges::copy(encoder.encode(request.opening),
                    std::back_inserter(to.back().tokens));
  return std::nullopt;
}

/// A response without streaming, or a stored one, is in memory as a whole.
static std::optional<ApiError>
checkLogprobs(const ApiRequest &request,
              std::span<const EngineRequest> requests) {
  if (!request.logprobs || (request.stream && !request.store))
    return std::nullopt;
  int64_t tokens = 0;
  for (const EngineRequest &each : requests)
    tokens +=
        each.maxTokens + (each.scoresPrompt ? int64_t(each.prompt.size()) : 0);
  if (tokens <= kMaxLogprobs / (1 + *request.logprobs))
    return std::nullopt;
  return ApiError{400,
                  fmt::format("logprobs of {} tokens with {} likeliest each "
                              "exceed the limit of {} per response; request "
                              "fewer tokens, or a stream that is not "
                              "stored",
                              tokens, *request.logprobs, kMaxLogprobs),
                  "logprobs", "invalid_value"};
}

std::optional<ApiError> Service::makeRequests(const ApiRequest &request,
                                              std::vector<EngineRequest> &to,
                                              std::vector<Echo> &echoes) {
  for (const auto &[token, bias] : request.sampling.bias)
    if (uint32_t(token) >= tokenizer.vocabSize())
      return ApiError{400,
                      fmt::format("token {} is outside the vocabulary of {}",
                                  token, tokenizer.vocabSize()),
                      "logit_bias", "invalid_value"};
  std::vector<Prompt> prompts;
  if (auto found = makePrompts(request, prompts))
    return found;
  std::random_device device;
  uint64_t seed = request.seed.value_or(uint64_t(device()) << 32 | device());
  for (const auto &[prompt, echo] : prompts) {
    // OpenAI's default for completions is 16; a chat may fill the context.
    int64_t room = engine.shape().context - int64_t(prompt.size());
    Status fits = checkLength(int64_t(prompt.size()),
                              request.maxTokens.value_or(1), engine.shape());
    if (!fits.ok())
      return ApiError{400, fits.message(),
                      std::string(inputField(request.endpoint)),
                      "context_length_exceeded"};
    int64_t usual = request.endpoint == Endpoint::completions ? 16 : room;
    for (int64_t i = 0; i < request.n; ++i) {
      EngineRequest &each = to.emplace_back();
      each.prompt = prompt;
      each.sampling = request.sampling;
      each.sampling.seed = seed + uint64_t(i);
      each.maxTokens = request.maxTokens.value_or(
          std::max<int64_t>(1, std::min(usual, room)));
      each.logprobs = request.logprobs;
      each.scoresPrompt = request.echo && request.logprobs;
      echoes.push_back(echo);
      each.deadline = EngineClock::now() + options.requestTime;
      each.priority = request.priority;
    }
  }
  return checkLogprobs(request, to);
}

} // namespace tessera::serve
