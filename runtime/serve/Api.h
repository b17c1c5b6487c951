// Requests of the OpenAI API as values, and its errors.
#pragma once
#include "runtime/data/Json.h"
#include "runtime/infer/Sampler.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tessera::serve {

/// Of errors: OpenAI's, or that of Anthropic's /v1/messages.
enum class ErrorForm : uint8_t { openAi, messages };

/// {"error": {message, type, param, code}}; empty strings become null.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param, code;
  std::string json(ErrorForm form = ErrorForm::openAi) const;
};

struct AnswerForm;

/// A tool call of an assistant message.
struct ToolCall {
  std::string id, name;
  std::string arguments; ///< JSON; in a request always an object
};

struct ChatMessage {
  std::string role; ///< system, user, assistant or tool
  std::string content;
  std::vector<ToolCall> calls = {}; ///< of role assistant
  std::string callId = {};          ///< of role tool: the call that it answers
  bool hasContent = true;           ///< false only with calls
  std::string reasoning = {};       ///< of role assistant, before the content
};

/// A function that the model may call.
struct Tool {
  std::string name;
  std::string json;     ///< in the format of chats
  JsonValue parameters; ///< schema of its arguments; null: none
  bool strict = false;  ///< arguments must match the schema
};

enum class ToolUse : uint8_t {
  none,
  automatic, ///< the model decides
  required,  ///< at least one call, and no content
};

/// The endpoint of a body.
enum class Endpoint : uint8_t {
  completions,
  chat,
  responses,
  embeddings,
  tokenize,
  detokenize,
  messages,
  countTokens,
  rerank,
  score,
};

/// Whether the endpoint generates text.
bool generates(Endpoint endpoint);

/// The form of errors of a path.
ErrorForm errorFormOf(std::string_view path);

/// The field that holds the endpoint's prompt.
std::string_view inputField(Endpoint endpoint);

/// Strings by name, in their order.
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// An item of the input as the API lists it: a JSON object.
struct InputItem {
  std::string id;   ///< empty: not assigned yet
  std::string json; ///< without the id
};

/// Settings for rendering the chat template.
struct TemplateSettings {
  /// A JSON object of template variables; empty: none.
  std::string variables;
  bool opensAnswer = true; ///< add the generation prompt
};

/// A string, or tokens.
using PromptInput = std::variant<std::string, std::vector<int32_t>>;

/// A body of any endpoint but embeddings and rankings. Every field has been
/// validated as far as possible without a model.
struct ApiRequest {
  Endpoint endpoint = Endpoint::completions;
  std::string model; ///< empty: the served model, without an adapter
  std::vector<PromptInput> prompts; ///< of completions and tokenizing
  /// Of chats and responses; responses may have none, and the model begins.
  std::vector<ChatMessage> messages;
  TemplateSettings templated; ///< of chats and tokenizing
  SamplingOptions sampling;
  std::optional<uint64_t> seed;     ///< nothing: the server draws one
  std::optional<int64_t> maxTokens; ///< nothing: the endpoint's default
  std::vector<std::string> stop;
  int64_t n = 1;
  std::optional<int64_t> logprobs; ///< number of likeliest tokens, 0 to 20
  /// Structured output (Forms.h); null: unconstrained.
  std::shared_ptr<const AnswerForm> form;
  std::string_view formField; ///< the field that set it
  std::string formName;       ///< the same with its member: a.b
  std::string opening; ///< the header of the output, which the prompt has
  bool ignoreEnd = false;
  int64_t priority = 0; ///< lower runs first
  bool stream = false, includeUsage = false;
  std::vector<Tool> tools;
  ToolUse toolUse = ToolUse::automatic;
  std::string onlyTool;      ///< the required tool; empty: any
  bool parallelCalls = true; ///< several calls are allowed
  bool mayCall() const { return !tools.empty() && toolUse != ToolUse::none; }
  bool asksTier = false;                   ///< the response has `service_tier`
  std::optional<std::string> instructions; ///< of responses
  Metadata metadata;
  bool store = false;           ///< the response can be retrieved later
  std::vector<InputItem> items; ///< the input, if stored
  bool background = false;      ///< the client does not wait
  std::string previousId;       ///< previous_response_id
  bool dropsOldest = false;     ///< truncation: auto
  bool obfuscate = false;       ///< deltas are padded
  bool echo = false;            ///< completions begin with their prompts
  bool returnsTokens = false;   ///< token ids of prompts and choices
  std::string suffix;           ///< text after a completion; empty: any
  /// The deprecated `functions`: a response has at most one call, and what
  /// follows it is ignored.
  bool usesFunctions = false;
  /// Of /tokenize: the tokenizer adds what begins and ends a text; nothing: to
  /// a prompt, and not to messages, whose template does.
  std::optional<bool> isFramed;
  bool returnsStrings = false; ///< of /tokenize: the strings of tokens
  std::string effort;          ///< of reasoning; empty: the template's own
  std::optional<bool> thinks;  ///< of /v1/messages: reasoning before the answer
};

/// The field that holds the request's prompt.
inline std::string_view inputField(const ApiRequest &request) {
  return request.messages.empty() || request.endpoint != Endpoint::tokenize
             ? inputField(request.endpoint)
             : "messages";
}

inline constexpr int64_t kMaxChoices = 128; ///< prompts times n
inline constexpr std::size_t kMaxTools = 128;
inline constexpr int64_t kMaxStops = 16, kMaxStopLength = 1024; ///< characters

/// OpenAI's default sampling parameters.
inline SamplingOptions usualSampling() { return {.temperature = 1}; }

/// Reads a body. Unknown and unsupported fields are errors that name them
/// (docs/serving.md lists them). `usual` is the default of sampling parameters.
std::variant<ApiRequest, ApiError>
parseApiRequest(std::string_view body, Endpoint endpoint,
                const SamplingOptions &usual = usualSampling());

} // namespace tessera::serve
