// The OpenAI API's requests as values, and its errors.
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

/// {"error": {message, type, param, code}}; empty texts are null.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param, code;
  std::string json() const;
};

struct AnswerForm;

/// Of a tool, by an assistant.
struct ToolCall {
  std::string id, name;
  std::string arguments; ///< JSON; in a request always of an object
};

struct ChatMessage {
  std::string role; ///< system, user, assistant or tool
  std::string content;
  std::vector<ToolCall> calls = {}; ///< of an assistant
  std::string callId = {};          ///< that a tool answers
  bool hasContent = true;           ///< a message with calls may have none
};

/// A function that the model may call.
struct Tool {
  std::string name;
  std::string json;     ///< as chats have it
  JsonValue parameters; ///< the schema of its arguments; null: it has none
  bool strict = false;  ///< calls must have arguments of that schema
};

enum class ToolUse : uint8_t {
  none,
  automatic, ///< the model decides
  required,  ///< at least one call, and nothing else
};

/// What a body is posted to.
enum class Endpoint : uint8_t { completions, chat, responses, embeddings };

/// The field that says what to continue.
std::string_view inputField(Endpoint endpoint);

/// Texts by their names, in their order.
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// One of what a request brought, as it is listed: a JSON object.
struct InputItem {
  std::string id;   ///< empty: it has none yet
  std::string json; ///< without the id
};

/// What a chat says to the model's template.
struct TemplateSettings {
  /// A JSON object, whose members are variables of the template; empty: none.
  std::string variables;
  bool opensAnswer = true; ///< the prompt ends where the answer begins
};

/// A text, or tokens.
using PromptInput = std::variant<std::string, std::vector<int32_t>>;

/// POST /v1/completions, /v1/chat/completions or /v1/responses; every field has
/// been checked as far as that is possible without a model.
struct ApiRequest {
  Endpoint endpoint = Endpoint::completions;
  std::string model; ///< of responses it may be empty: the one that is served
  std::vector<PromptInput> prompts; ///< of completions
  /// Of chats and responses; of responses there may be none: the model begins.
  std::vector<ChatMessage> messages;
  TemplateSettings templated; ///< of chats
  SamplingOptions sampling;
  std::optional<uint64_t> seed;     ///< nothing: drawn by the server
  std::optional<int64_t> maxTokens; ///< nothing: the endpoint's default
  std::vector<std::string> stop;
  int64_t n = 1;
  std::optional<int64_t> logprobs; ///< how many likeliest tokens, 0 to 20
  /// That answers must have (Forms.h); null: any.
  std::shared_ptr<const AnswerForm> form;
  std::string_view formField; ///< that asked for it
  std::string formName;       ///< the same with what stands in it: a.b
  bool ignoreEnd = false;
  bool stream = false, includeUsage = false;
  std::vector<Tool> tools;
  ToolUse toolUse = ToolUse::automatic;
  std::string onlyTool;      ///< that is called, if it is required; empty: any
  bool parallelCalls = true; ///< an answer may have several
  bool mayCall() const { return !tools.empty() && toolUse != ToolUse::none; }
  bool asksTier = false; ///< the answer says which `service_tier` it had
  std::optional<std::string> instructions; ///< of responses
  Metadata metadata;
  bool store = false;           ///< the answer may be asked for again
  std::vector<InputItem> items; ///< of what is stored
  bool background = false;      ///< the answer is not waited for
  std::string previousId;       ///< of the response that it goes on from
  bool dropsOldest = false;     ///< messages that do not fit
  bool obfuscate = false;       ///< pieces of a stream hide their lengths
  bool echo = false;            ///< completions begin with their prompts
  std::string suffix;           ///< that a completion leads to; empty: any
  /// Tools by their older names: an answer has room for one call, and what
  /// follows it is not read.
  bool usesFunctions = false;
};

inline constexpr int64_t kMaxChoices = 128; ///< prompts times n
inline constexpr std::size_t kMaxTools = 128;
inline constexpr int64_t kMaxStops = 16, kMaxStopLength = 1024; ///< characters

/// How is drawn where nobody says: OpenAI's defaults.
inline SamplingOptions usualSampling() { return {.temperature = 1}; }

/// Reads a body. Fields that are not known, or not served, are errors that name
/// them (docs/serving.md has the list). `usual` holds where it says nothing.
std::variant<ApiRequest, ApiError>
parseApiRequest(std::string_view body, Endpoint endpoint,
                const SamplingOptions &usual = usualSampling());

} // namespace tessera::serve
