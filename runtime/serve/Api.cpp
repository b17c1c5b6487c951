#include "runtime/serve/Api.h"
#include "runtime/data/Json.h"
#include "runtime/support/Text.h"

#include <charconv>
#include <cmath>
#include <functional>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using Problem = std::optional<ApiError>;

template <typename... Args>
ApiError problem(std::string_view param, fmt::format_string<Args...> format,
                 Args &&...args) {
  return {400, fmt::format(format, std::forward<Args>(args)...),
          std::string(param), "invalid_value"};
}

/// One that stands in a field as a whole number, also below zero.
bool getWhole(const JsonValue &value, int64_t &to) {
  double number = 0;
  uint64_t natural = 0;
  if (value.get(natural)) {
    if (natural > uint64_t(INT64_MAX))
      return false;
    to = int64_t(natural);
    return true;
  }
  if (!value.get(number) || std::trunc(number) != number ||
      std::abs(number) > 0x1p53)
    return false;
  to = int64_t(number);
  return true;
}

Problem readWhole(std::string_view name, const JsonValue &value, int64_t least,
                  int64_t most, int64_t &to) {
  if (!getWhole(value, to) || to < least || to > most)
    return problem(name, "{} must be a whole number from {} to {}", name, least,
                   most);
  return std::nullopt;
}

Problem readNumber(std::string_view name, const JsonValue &value, double least,
                   double most, float &to) {
  double number = 0;
  if (!value.get(number) || !(number >= least && number <= most))
    return problem(name, "{} must be a number from {} to {}", name, least,
                   most);
  to = float(number);
  return std::nullopt;
}

Problem readBool(std::string_view name, const JsonValue &value, bool &to) {
  if (!value.get(to))
    return problem(name, "{} must be true or false", name);
  return std::nullopt;
}

//===--- fields -----------------------------------------------------------===//

/// Reads one field that is not null into the request.
using Reader = Problem (*)(std::string_view, const JsonValue &, ApiRequest &);

Problem readModel(std::string_view name, const JsonValue &value,
                  ApiRequest &request) {
  std::string_view text;
  if (!value.get(text))
    return problem(name, "model must be a text");
  request.model = text;
  return std::nullopt;
}

Problem readTokens(std::string_view name, const JsonValue::Array &values,
                   PromptInput &to) {
  std::vector<int32_t> tokens;
  for (const JsonValue &value : values) {
    uint64_t token = 0;
    if (!value.get(token) || token > uint64_t(INT32_MAX))
      return problem(name, "a token of a prompt must be a natural number");
    tokens.push_back(int32_t(token));
  }
  to = std::move(tokens);
  return std::nullopt;
}

Problem readPrompt(std::string_view name, const JsonValue &value,
                   ApiRequest &request) {
  std::string_view text;
  if (value.get(text)) {
    request.prompts.emplace_back(std::string(text));
    return std::nullopt;
  }
  const JsonValue::Array &parts = value.elements();
  if (parts.empty())
    return problem(name, "prompt must be a text, texts, tokens, or lists of "
                         "tokens, and not empty");
  uint64_t token = 0;
  if (parts.front().get(token))
    return readTokens(name, parts, request.prompts.emplace_back());
  if (int64_t(parts.size()) > kMaxChoices)
    return problem(name, "at most {} prompts are read at once", kMaxChoices);
  for (const JsonValue &part : parts) {
    PromptInput &prompt = request.prompts.emplace_back();
    if (part.get(text))
      prompt = std::string(text);
    else if (!part.isArray())
      return problem(name, "a prompt must be a text or a list of tokens");
    else if (Problem found = readTokens(name, part.elements(), prompt))
      return found;
  }
  return std::nullopt;
}

Problem readContent(const JsonValue &content, std::string &to) {
  std::string_view text, type;
  if (content.get(text)) {
    to = text;
    return std::nullopt;
  }
  if (!content.isArray())
    return problem("messages", "a message's content must be a text or a list "
                               "of parts");
  for (const JsonValue &part : content.elements()) {
    if (!part["type"].get(type) || type != "text" || !part["text"].get(text))
      return problem("messages", "a part of a message must be {{\"type\": "
                                 "\"text\", \"text\": ...}}; this model reads "
                                 "no images, sounds or files");
    to += text;
  }
  return std::nullopt;
}

Problem readMessages(std::string_view name, const JsonValue &value,
                     ApiRequest &request) {
  if (value.elements().empty())
    return problem(name, "messages must be a list of at least one message");
  for (const JsonValue &each : value.elements()) {
    ChatMessage &message = request.messages.emplace_back();
    std::string_view role;
    if (!each["role"].get(role))
      return problem(name, "a message must have a role");
    if (role == "developer") // OpenAI's newer word for it
      role = "system";
    if (role != "system" && role != "user" && role != "assistant")
      return problem(name,
                     "the role of a message must be system, developer, "
                     "user or assistant, got: {}",
                     quote(role));
    message.role = role;
    for (const JsonValue::Member &member : each.members())
      if (member.name != "role" && member.name != "content" &&
          member.name != "name" && !member.value.isNull())
        return problem(name, "the field {} of a message is not served",
                       quote(member.name));
    if (Problem found = readContent(each["content"], message.content))
      return found;
  }
  return std::nullopt;
}

Problem readStop(std::string_view name, const JsonValue &value,
                 ApiRequest &request) {
  auto add = [&](const JsonValue &each) -> Problem {
    std::string_view text;
    if (!each.get(text) || text.empty() || int64_t(text.size()) > kMaxStopBytes)
      return problem(name, "a stop must be a text of 1 to {} bytes",
                     kMaxStopBytes);
    request.stop.emplace_back(text);
    return std::nullopt;
  };
  if (!value.isArray())
    return add(value);
  if (int64_t(value.elements().size()) > kMaxStops)
    return problem(name, "there may be at most {} stops", kMaxStops);
  for (const JsonValue &each : value.elements())
    if (Problem found = add(each))
      return found;
  return std::nullopt;
}

Problem readBias(std::string_view name, const JsonValue &value,
                 ApiRequest &request) {
  if (!value.isObject() || value.members().size() > 1024)
    return problem(name, "logit_bias must map at most 1024 tokens to numbers");
  for (const JsonValue::Member &member : value.members()) {
    int32_t token = -1;
    const char *end = member.name.data() + member.name.size();
    auto [stop, code] = std::from_chars(member.name.data(), end, token);
    if (code != std::errc() || stop != end || token < 0)
      return problem(name, "{} is no token", quote(member.name));
    float bias = 0;
    if (Problem found = readNumber(name, member.value, -100, 100, bias))
      return found;
    request.sampling.bias.emplace_back(token, bias);
  }
  return std::nullopt;
}

Problem readSeed(std::string_view name, const JsonValue &value,
                 ApiRequest &request) {
  int64_t seed = 0;
  uint64_t natural = 0;
  if (value.get(natural))
    request.seed = natural;
  else if (getWhole(value, seed))
    request.seed = uint64_t(seed);
  else
    return problem(name, "seed must be a whole number");
  return std::nullopt;
}

Problem readStreamOptions(std::string_view name, const JsonValue &value,
                          ApiRequest &request) {
  if (!value.isObject())
    return problem(name, "stream_options must be an object");
  for (const JsonValue::Member &member : value.members()) {
    if (member.name != "include_usage")
      return problem(name, "the stream option {} is not served",
                     quote(member.name));
    if (Problem found = readBool("stream_options.include_usage", member.value,
                                 request.includeUsage))
      return found;
  }
  return std::nullopt;
}

Problem readMaxTokens(std::string_view name, const JsonValue &value,
                      ApiRequest &request) {
  return readWhole(name, value, 1, INT32_MAX, request.maxTokens.emplace());
}

Problem readTemperature(std::string_view name, const JsonValue &value,
                        ApiRequest &request) {
  return readNumber(name, value, 0, 2, request.sampling.temperature);
}

Problem readTopP(std::string_view name, const JsonValue &value,
                 ApiRequest &request) {
  // Below this nothing but the likeliest token is left, as with it.
  return readNumber(name, value, 1e-6, 1, request.sampling.topP);
}

Problem readCompletionLogprobs(std::string_view name, const JsonValue &value,
                               ApiRequest &request) {
  return readWhole(name, value, 0, 20, request.logprobs.emplace());
}

Problem readChatLogprobs(std::string_view name, const JsonValue &value,
                         ApiRequest &request) {
  bool wanted = false;
  if (Problem found = readBool(name, value, wanted))
    return found;
  if (wanted && !request.logprobs)
    request.logprobs = 0;
  return std::nullopt;
}

/// Read after `logprobs`, without which it means nothing.
Problem readTopLogprobs(std::string_view name, const JsonValue &value,
                        ApiRequest &request) {
  if (!request.logprobs)
    return problem(name, "top_logprobs needs logprobs: true");
  return readWhole(name, value, 0, 20, *request.logprobs);
}

Problem readBestOf(std::string_view name, const JsonValue &value,
                   ApiRequest &request) {
  int64_t best = 0;
  if (!getWhole(value, best) || best != request.n)
    return problem(name, "best_of is not served; leave it out, or give it the "
                         "value of n");
  return std::nullopt;
}

Problem readResponseFormat(std::string_view name, const JsonValue &value,
                           ApiRequest &) {
  std::string_view type;
  if (!value["type"].get(type) || type != "text")
    return problem(name, "response_format must be {{\"type\": \"text\"}}: "
                         "answers in a given form are not served");
  return std::nullopt;
}

Problem readModalities(std::string_view name, const JsonValue &value,
                       ApiRequest &) {
  std::string_view only;
  if (value.elements().size() != 1 || !value.elements()[0].get(only) ||
      only != "text")
    return problem(name, "modalities must be [\"text\"]");
  return std::nullopt;
}

Problem ignore(std::string_view, const JsonValue &, ApiRequest &) {
  return std::nullopt;
}

/// A field that changes nothing at its default, and is not served otherwise.
Problem readFalse(std::string_view name, const JsonValue &value, ApiRequest &) {
  bool wanted = true;
  if (value.get(wanted) && !wanted)
    return std::nullopt;
  return problem(name, "{} is not served", name);
}

Problem readEmpty(std::string_view name, const JsonValue &value, ApiRequest &) {
  std::string_view text;
  const bool isChoice = name == "tool_choice" || name == "function_call";
  if ((value.get(text) && (text.empty() || (isChoice && text == "none"))) ||
      (value.isArray() && value.elements().empty()))
    return std::nullopt;
  return problem(name, "{} is not served", name);
}

constexpr unsigned kCompletions = 1, kChat = 2, kBoth = 3;

struct Field {
  std::string_view name;
  unsigned endpoints;
  Reader read;
};

/// In the order in which they are read.
constexpr Field kFields[] = {
    {"model", kBoth, readModel},
    {"prompt", kCompletions, readPrompt},
    {"messages", kChat, readMessages},
    {"max_tokens", kBoth, readMaxTokens},
    {"max_completion_tokens", kChat, readMaxTokens},
    {"temperature", kBoth, readTemperature},
    {"top_p", kBoth, readTopP},
    {"n", kBoth,
     [](std::string_view name, const JsonValue &value, ApiRequest &request) {
       return readWhole(name, value, 1, kMaxChoices, request.n);
     }},
    {"best_of", kCompletions, readBestOf},
    {"stop", kBoth, readStop},
    {"seed", kBoth, readSeed},
    {"stream", kBoth,
     [](std::string_view name, const JsonValue &value, ApiRequest &request) {
       return readBool(name, value, request.stream);
     }},
    {"stream_options", kBoth, readStreamOptions},
    {"presence_penalty", kBoth,
     [](std::string_view name, const JsonValue &value, ApiRequest &request) {
       return readNumber(name, value, -2, 2, request.sampling.presencePenalty);
     }},
    {"frequency_penalty", kBoth,
     [](std::string_view name, const JsonValue &value, ApiRequest &request) {
       return readNumber(name, value, -2, 2, request.sampling.frequencyPenalty);
     }},
    {"logit_bias", kBoth, readBias},
    {"logprobs", kCompletions, readCompletionLogprobs},
    {"logprobs", kChat, readChatLogprobs},
    {"top_logprobs", kChat, readTopLogprobs},
    // Not OpenAI's, but known from other servers.
    {"top_k", kBoth,
     [](std::string_view name, const JsonValue &value, ApiRequest &request) {
       return readWhole(name, value, 0, INT32_MAX, request.sampling.topK);
     }},
    {"min_p", kBoth,
     [](std::string_view name, const JsonValue &value, ApiRequest &request) {
       return readNumber(name, value, 0, 1, request.sampling.minP);
     }},
    {"repetition_penalty", kBoth,
     [](std::string_view name, const JsonValue &value, ApiRequest &request) {
       return readNumber(name, value, 0.01, 100,
                         request.sampling.repetitionPenalty);
     }},
    {"ignore_eos", kBoth,
     [](std::string_view name, const JsonValue &value, ApiRequest &request) {
       return readBool(name, value, request.ignoreEnd);
     }},
    // Only about how OpenAI keeps, bills and routes.
    {"user", kBoth, ignore},
    {"metadata", kBoth, ignore},
    {"service_tier", kBoth, ignore},
    {"safety_identifier", kBoth, ignore},
    {"prompt_cache_key", kBoth, ignore},
    {"parallel_tool_calls", kChat, ignore}, // there are no tools
    {"response_format", kChat, readResponseFormat},
    {"modalities", kChat, readModalities},
    {"echo", kCompletions, readFalse},
    {"store", kChat, readFalse},
    {"suffix", kCompletions, readEmpty},
    {"tools", kChat, readEmpty},
    {"tool_choice", kChat, readEmpty},
    {"functions", kChat, readEmpty},
    {"function_call", kChat, readEmpty},
};

unsigned maskOf(Endpoint endpoint) {
  return endpoint == Endpoint::chat ? kChat : kCompletions;
}

Problem checkNames(const JsonValue &root, Endpoint endpoint) {
  for (const JsonValue::Member &member : root.members()) {
    bool known = false;
    for (const Field &field : kFields)
      known |= field.name == member.name &&
               (field.endpoints & maskOf(endpoint)) != 0;
    if (!known && !member.value.isNull())
      return problem(oneLine(member.name), "the field {} is not served",
                     quote(member.name));
  }
  return std::nullopt;
}

Problem checkTogether(const ApiRequest &request) {
  bool isChat = request.endpoint == Endpoint::chat;
  if (request.model.empty())
    return problem("model", "model is missing");
  if (isChat && request.messages.empty())
    return problem("messages", "messages are missing");
  if (!isChat && request.prompts.empty())
    return problem("prompt", "prompt is missing");
  if (!isChat && int64_t(request.prompts.size()) * request.n > kMaxChoices)
    return problem("n", "prompts times n must be at most {}", kMaxChoices);
  if (request.includeUsage && !request.stream)
    return problem("stream_options", "stream_options need stream: true");
  return std::nullopt;
}

} // namespace

std::string ApiError::json() const {
  auto orNull = [](const std::string &text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(text);
  };
  std::string type = status == 401   ? "authentication_error"
                     : status == 429 ? "rate_limit_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  nlohmann::json error = {{"message", message},
                          {"type", type},
                          {"param", orNull(param)},
                          {"code", orNull(code)}};
  // What the client sent may stand in a message.
  return nlohmann::json{{"error", error}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::variant<ApiRequest, ApiError>
parseApiRequest(std::string_view body, Endpoint endpoint,
                const SamplingOptions &usual) {
  StatusOr<JsonValue> root = JsonValue::parse(body, "body");
  if (!root.ok())
    return ApiError{400, root.message(), "", "invalid_json"};
  if (!root->isObject())
    return ApiError{400, "the body must be a JSON object", "", "invalid_json"};
  ApiRequest request;
  request.endpoint = endpoint;
  request.sampling = usual;
  if (Problem found = checkNames(*root, endpoint))
    return *found;
  for (const Field &field : kFields) {
    const JsonValue &value = (*root)[field.name];
    if ((field.endpoints & maskOf(endpoint)) == 0 || value.isNull())
      continue;
    if (Problem found = field.read(field.name, value, request))
      return *found;
  }
  if (Problem found = checkTogether(request))
    return *found;
  return request;
}

} // namespace tessera::serve
