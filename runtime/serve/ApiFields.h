// The list of request fields, from which bodies are read and /openapi.json is
// written.
#pragma once
#include "runtime/data/Json.h"
#include "runtime/serve/Api.h"
#include "runtime/support/Text.h"

#include <map>
#include <span>

#include <fmt/format.h>

namespace tessera::serve {

using Problem = std::optional<ApiError>;

template <typename... Args>
ApiError problem(std::string_view param, fmt::format_string<Args...> format,
                 Args &&...args) {
  return {400, fmt::format(format, std::forward<Args>(args)...),
          std::string(param), "invalid_value"};
}

inline constexpr unsigned kCompletions = 1, kChat = 2, kResponses = 4,
                          kEmbeddings = 8, kTokenize = 16, kDetokenize = 32,
                          kMessages = 64, kCountTokens = 128, kRerank = 256,
                          kScore = 512, kRanking = kRerank | kScore;
/// `kAll`: those of OpenAI that generate text.
inline constexpr unsigned kBoth = kCompletions | kChat, kAll = 7;

inline unsigned maskOf(Endpoint endpoint) { return 1u << unsigned(endpoint); }

template <typename Request> struct FieldOf {
  /// Reads a value that is not null into the request.
  using Reader = Problem (*)(const FieldOf &, const JsonValue &, Request &);

  std::string_view name;
  unsigned endpoints; ///< that accept it
  Reader read;
  /// A JSON schema without bounds, such as {"type": "number"}.
  std::string_view schema;
  /// Bounds of a number, for the reader and the schema.
  double least = 0, most = 0;
  std::string_view about = {}; ///< description in /openapi.json
};

using Field = FieldOf<ApiRequest>;

/// The fields of all endpoints but embeddings, in the order in which they are
/// read.
std::span<const Field> apiFields();

/// Reads the fields of an endpoint into the request; an unknown field is an
/// error that names it.
template <typename Request>
Problem readFields(std::span<const FieldOf<Request>> fields, Endpoint endpoint,
                   const JsonValue &root, Request &request) {
  auto isOf = [&](const FieldOf<Request> &field) {
    return (field.endpoints & maskOf(endpoint)) != 0;
  };
  for (const JsonValue::Member &member : root.members()) {
    bool known = member.value.isNull();
    for (const FieldOf<Request> &field : fields)
      known |= field.name == member.name && isOf(field);
    if (!known)
      return problem(oneLine(member.name), "the field {} is not supported",
                     quote(member.name));
  }
  for (const FieldOf<Request> &field : fields) {
    const JsonValue &value = root[field.name];
    if (!isOf(field) || value.isNull())
      continue;
    if (Problem found = field.read(field, value, request))
      return found;
  }
  return std::nullopt;
}

/// The value as JSON in one line.
std::string jsonOf(const JsonValue &value);

/// The object in a body, or an error.
std::variant<JsonValue, ApiError> parseBody(std::string_view body);

//===--- readers ----------------------------------------------------------===//

/// Any member of `what` but those known is an error, so that none is ignored.
Problem checkMembers(std::string_view field, std::string_view what,
                     const JsonValue &value,
                     std::span<const std::string_view> known);
/// A whole number in a field, which may be negative.
bool getWhole(const JsonValue &value, int64_t &to);
Problem readWhole(std::string_view name, int64_t least, int64_t most,
                  const JsonValue &value, int64_t &to);
template <typename Request>
Problem readWhole(const FieldOf<Request> &field, const JsonValue &value,
                  int64_t &to) {
  return readWhole(field.name, int64_t(field.least), int64_t(field.most), value,
                   to);
}
/// truncate_prompt_tokens: a count, or -1 for the context of the model.
Problem readTruncation(std::string_view name, const JsonValue &value,
                       std::optional<int64_t> &to);
Problem readNumber(const Field &field, const JsonValue &value, float &to);
Problem readBool(std::string_view name, const JsonValue &value, bool &to);
Problem readText(std::string_view name, const JsonValue &value,
                 std::string &to);

// Sampling and output (ApiOptions.cpp).
Problem readModel(const Field &field, const JsonValue &value,
                  ApiRequest &request);
Problem readSuffix(const Field &field, const JsonValue &value,
                   ApiRequest &request);
Problem readInstructions(const Field &field, const JsonValue &value,
                         ApiRequest &request);
Problem readStop(const Field &field, const JsonValue &value,
                 ApiRequest &request);
Problem readBias(const Field &field, const JsonValue &value,
                 ApiRequest &request);
Problem readSeed(const Field &field, const JsonValue &value,
                 ApiRequest &request);
Problem readStreamOptions(const Field &field, const JsonValue &value,
                          ApiRequest &request);
Problem readResponseStreamOptions(const Field &field, const JsonValue &value,
                                  ApiRequest &request);
Problem readMaxTokens(const Field &field, const JsonValue &value,
                      ApiRequest &request);
Problem readCompletionLogprobs(const Field &field, const JsonValue &value,
                               ApiRequest &request);
Problem readChatLogprobs(const Field &field, const JsonValue &value,
                         ApiRequest &request);
Problem readTopLogprobs(const Field &field, const JsonValue &value,
                        ApiRequest &request);
Problem readMetadata(const Field &field, const JsonValue &value,
                     ApiRequest &request);

Problem readPrevious(const Field &field, const JsonValue &value,
                     ApiRequest &request);
Problem readMetadata(std::string_view name, const JsonValue &value,
                     Metadata &to);

// Prompts, messages and items (ApiInput.cpp).
Problem readPrompt(const Field &field, const JsonValue &value,
                   ApiRequest &request);
Problem readMessages(const Field &field, const JsonValue &value,
                     ApiRequest &request);
Problem readInput(const Field &field, const JsonValue &value,
                  ApiRequest &request);
/// Tokens of a prompt.
Problem readTokens(std::string_view name, const JsonValue::Array &values,
                   PromptInput &to);
/// Appends a list of items to the request's.
Problem readItems(std::string_view name, const JsonValue &value,
                  ApiRequest &request);

// Tools (ApiTools.cpp).
Problem readTools(const Field &field, const JsonValue &value,
                  ApiRequest &request);
Problem readToolChoice(const Field &field, const JsonValue &value,
                       ApiRequest &request);
Problem readResponseTools(const Field &field, const JsonValue &value,
                          ApiRequest &request);
Problem readFunctions(const Field &field, const JsonValue &value,
                      ApiRequest &request);
Problem readFunctionCall(const Field &field, const JsonValue &value,
                         ApiRequest &request);
Problem readTemplateVariables(const Field &field, const JsonValue &value,
                              ApiRequest &request);
Problem readGenerationPrompt(const Field &field, const JsonValue &value,
                             ApiRequest &request);
Problem readCustomTools(const Field &field, const JsonValue &value,
                        ApiRequest &request);
Problem readTypedToolChoice(const Field &field, const JsonValue &value,
                            ApiRequest &request);
/// Limits of a request's tools, which every response repeats, and of its
/// template variables.
inline constexpr std::size_t kMaxToolBytes = std::size_t(1) << 20;
/// Templates search members linearly, so an object of very many is slow to
/// convert.
inline constexpr std::size_t kMaxMembers = 1000;

// Earlier calls (ApiCalls.cpp).
/// Of an assistant message.
inline constexpr std::size_t kMaxCallValues = 10'000;
/// Takes a value's size from `left`; false if that is not enough, or an object
/// has too many members.
bool isModest(const JsonValue &value, std::size_t &left);
/// One of `left` values that a message's calls may have.
Problem readCall(std::string_view name, const JsonValue &id,
                 const JsonValue &called, std::size_t &left,
                 std::vector<ToolCall> &to);
/// The same of a block of type tool_use.
Problem readToolUse(std::string_view name, const JsonValue &block,
                    std::size_t &left, std::vector<ToolCall> &to);
/// The call that a message answers, or its calls.
Problem readToolParts(std::string_view name, const JsonValue &message,
                      ChatMessage &read);
/// The messages with the latest call of each function, by name.
using OlderCalls = std::map<std::string, std::size_t, std::less<>>;
/// The predecessor of `tool_calls`: one call without an id, followed by a
/// message with its function's name. `at`: the index of the message.
Problem readOlderCall(std::string_view name, const JsonValue &message,
                      std::size_t at, OlderCalls &calls, ChatMessage &read);

// Anthropic's form of messages (ApiMessages.cpp).
Problem readTurns(const Field &field, const JsonValue &value,
                  ApiRequest &request);
Problem readSystem(const Field &field, const JsonValue &value,
                   ApiRequest &request);
Problem readStopSequences(const Field &field, const JsonValue &value,
                          ApiRequest &request);
Problem readThinking(const Field &field, const JsonValue &value,
                     ApiRequest &request);
Problem readCaller(const Field &field, const JsonValue &value,
                   ApiRequest &request);
Problem readMessagesTier(const Field &field, const JsonValue &value,
                         ApiRequest &request);
Problem readCacheControl(const Field &field, const JsonValue &value,
                         ApiRequest &request);
/// {"type": "ephemeral"}, or nothing.
Problem readCacheHint(std::string_view field, const JsonValue &value);

// Tokenizing (Tokenize.cpp).
Problem readOnePrompt(const Field &field, const JsonValue &value,
                      ApiRequest &request);
Problem readFraming(const Field &field, const JsonValue &value,
                    ApiRequest &request);
Problem readTokenIds(const Field &field, const JsonValue &value,
                     ApiRequest &request);

// Structured output (Forms.cpp).
Problem readResponseFormat(const Field &field, const JsonValue &value,
                           ApiRequest &request);
Problem readTextFormat(const Field &field, const JsonValue &value,
                       ApiRequest &request);
Problem readStructuredOutputs(const Field &field, const JsonValue &value,
                              ApiRequest &request);
Problem readGuided(const Field &field, const JsonValue &value,
                   ApiRequest &request);

// Unsupported fields, which are accepted only with values that change nothing
// (ApiRefused.cpp).
Problem ignoreText(const Field &field, const JsonValue &value,
                   ApiRequest &request);
Problem ignoreWhole(const Field &field, const JsonValue &value,
                    ApiRequest &request);
Problem readEmpty(const Field &field, const JsonValue &value,
                  ApiRequest &request);
Problem readZero(const Field &field, const JsonValue &value,
                 ApiRequest &request);
Problem readFalse(const Field &field, const JsonValue &value,
                  ApiRequest &request);
Problem readBestOf(const Field &field, const JsonValue &value,
                   ApiRequest &request);
Problem readAudio(const Field &field, const JsonValue &value,
                  ApiRequest &request);
Problem readModalities(const Field &field, const JsonValue &value,
                       ApiRequest &request);
Problem readTruncation(const Field &field, const JsonValue &value,
                       ApiRequest &request);
Problem readPrediction(const Field &field, const JsonValue &value,
                       ApiRequest &request);
Problem readServiceTier(const Field &field, const JsonValue &value,
                        ApiRequest &request);
Problem readEffort(const Field &field, const JsonValue &value,
                   ApiRequest &request);
Problem readReasoning(const Field &field, const JsonValue &value,
                      ApiRequest &request);
Problem readVerbosity(const Field &field, const JsonValue &value,
                      ApiRequest &request);
std::span<const std::string_view> includables();
Problem readInclude(const Field &field, const JsonValue &value,
                    ApiRequest &request);
Problem refuseAny(const Field &field, const JsonValue &value,
                  ApiRequest &request);

} // namespace tessera::serve
