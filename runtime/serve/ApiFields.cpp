#include "runtime/serve/ApiFields.h"
#include "runtime/serve/Choice.h"
#include "runtime/support/Text.h"

#include <charconv>
#include <cmath>

namespace tessera::serve {

//===--- values -----------------------------------------------------------===//

bool getWhole(const JsonValue &value, int64_t &to) {
  if (value.get(to))
    return true;
  // 3.0 is a whole number too, as far as a double tells them apart.
  double number = 0;
  if (!value.get(number) || std::trunc(number) != number ||
      std::abs(number) > 0x1p53)
    return false;
  to = int64_t(number);
  return true;
}

Problem readWhole(std::string_view name, int64_t least, int64_t most,
                  const JsonValue &value, int64_t &to) {
  if (!getWhole(value, to) || to < least || to > most)
    return problem(name, "{} must be a whole number from {} to {}", name, least,
                   most);
  return std::nullopt;
}

Problem readNumber(const Field &field, const JsonValue &value, float &to) {
  double number = 0;
  if (!value.get(number) || !(number >= field.least && number <= field.most))
    return problem(field.name, "{} must be a number from {} to {}", field.name,
                   field.least, field.most);
  to = float(number);
  return std::nullopt;
}

Problem readBool(std::string_view name, const JsonValue &value, bool &to) {
  if (!value.get(to))
    return problem(name, "{} must be true or false", name);
  return std::nullopt;
}

Problem readText(std::string_view name, const JsonValue &value,
                 std::string &to) {
  std::string_view text;
  if (!value.get(text))
    return problem(name, "{} must be a text", name);
  to = text;
  return std::nullopt;
}

//===--- fields -----------------------------------------------------------===//

namespace {

Problem readModel(const Field &field, const JsonValue &value,
                  ApiRequest &request) {
  return readText(field.name, value, request.model);
}

Problem readInstructions(const Field &field, const JsonValue &value,
                         ApiRequest &request) {
  return readText(field.name, value, request.instructions.emplace());
}

Problem readStop(const Field &field, const JsonValue &value,
                 ApiRequest &request) {
  auto add = [&](const JsonValue &each) -> Problem {
    std::string_view text;
    if (!each.get(text) || text.empty() || charactersOf(text) > kMaxStopLength)
      return problem(field.name, "a stop must be a text of 1 to {} characters",
                     kMaxStopLength);
    request.stop.emplace_back(text);
    return std::nullopt;
  };
  if (!value.isArray())
    return add(value);
  if (int64_t(value.elements().size()) > kMaxStops)
    return problem(field.name, "there may be at most {} stops", kMaxStops);
  for (const JsonValue &each : value.elements())
    if (Problem found = add(each))
      return found;
  return std::nullopt;
}

Problem readBias(const Field &field, const JsonValue &value,
                 ApiRequest &request) {
  if (!value.isObject() || value.members().size() > 1024)
    return problem(field.name,
                   "logit_bias must map at most 1024 tokens to numbers");
  for (const JsonValue::Member &member : value.members()) {
    int32_t token = -1;
    const char *end = member.name.data() + member.name.size();
    auto [stop, code] = std::from_chars(member.name.data(), end, token);
    if (code != std::errc() || stop != end || token < 0)
      return problem(field.name, "{} is no token", quote(member.name));
    float bias = 0;
    if (Problem found = readNumber(field, member.value, bias))
      return found;
    request.sampling.bias.emplace_back(token, bias);
  }
  return std::nullopt;
}

Problem readSeed(const Field &field, const JsonValue &value,
                 ApiRequest &request) {
  int64_t seed = 0;
  uint64_t natural = 0;
  if (value.get(natural))
    request.seed = natural;
  else if (getWhole(value, seed))
    request.seed = uint64_t(seed);
  else
    return problem(field.name, "seed must be a whole number");
  return std::nullopt;
}

/// Obfuscation pads events against whoever measures encrypted traffic, a
/// proxy's matter here.
bool isPlain(const JsonValue::Member &option) {
  bool obfuscated = true;
  return option.name == "include_obfuscation" && option.value.get(obfuscated) &&
         !obfuscated;
}

Problem readStreamOptions(const Field &field, const JsonValue &value,
                          ApiRequest &request) {
  if (!value.isObject())
    return problem(field.name, "stream_options must be an object");
  for (const JsonValue::Member &member : value.members()) {
    if (isPlain(member))
      continue;
    if (member.name != "include_usage")
      return problem(field.name, "the stream option {} is not served",
                     quote(member.name));
    if (Problem found = readBool("stream_options.include_usage", member.value,
                                 request.includeUsage))
      return found;
  }
  return std::nullopt;
}

/// Of responses, whose usage is always told.
Problem readResponseStreamOptions(const Field &field, const JsonValue &value,
                                  ApiRequest &) {
  for (const JsonValue::Member &member : value.members())
    if (!isPlain(member))
      return problem(field.name, "the stream option {} is not served",
                     quote(member.name));
  if (!value.isObject())
    return problem(field.name, "stream_options must be an object");
  return std::nullopt;
}

Problem readMaxTokens(const Field &field, const JsonValue &value,
                      ApiRequest &request) {
  return readWhole(field, value, request.maxTokens.emplace());
}

Problem readCompletionLogprobs(const Field &field, const JsonValue &value,
                               ApiRequest &request) {
  return readWhole(field, value, request.logprobs.emplace());
}

Problem readChatLogprobs(const Field &field, const JsonValue &value,
                         ApiRequest &request) {
  bool wanted = false;
  if (Problem found = readBool(field.name, value, wanted))
    return found;
  if (wanted && !request.logprobs)
    request.logprobs = 0;
  return std::nullopt;
}

/// Read after `logprobs`, without which it means nothing.
Problem readTopLogprobs(const Field &field, const JsonValue &value,
                        ApiRequest &request) {
  if (!request.logprobs)
    return problem(field.name, "top_logprobs needs logprobs: true");
  return readWhole(field, value, *request.logprobs);
}

/// Nothing is done with it, but a response has it again.
Problem readMetadata(const Field &field, const JsonValue &value,
                     ApiRequest &request) {
  bool good = value.isObject() && value.members().size() <= 16;
  for (const JsonValue::Member &member : value.members()) {
    std::string_view text;
    good = good && member.value.get(text) && charactersOf(text) <= 512 &&
           charactersOf(member.name) <= 64;
    if (good)
      request.metadata.emplace_back(member.name, text);
  }
  if (!good)
    return problem(field.name, "metadata must have at most 16 texts, of 512 "
                               "characters with names of 64");
  return std::nullopt;
}

/// A reader of one number of the request: readOf<&ApiRequest::n>.
template <auto Member>
Problem readOf(const Field &field, const JsonValue &value,
               ApiRequest &request) {
  auto &to = [&]() -> auto & {
    if constexpr (requires { request.*Member; })
      return request.*Member;
    else
      return request.sampling.*Member;
  }();
  using To = std::remove_reference_t<decltype(to)>;
  if constexpr (std::is_same_v<To, float>)
    return readNumber(field, value, to);
  else if constexpr (std::is_same_v<To, bool>)
    return readBool(field.name, value, to);
  else
    return readWhole(field, value, to);
}

constexpr double kMost = INT32_MAX;
constexpr std::string_view kText = R"({"type": "string"})",
                           kWhole = R"({"type": "integer"})",
                           kNumber = R"({"type": "number"})",
                           kBoolean = R"({"type": "boolean"})",
                           kFalse = R"({"const": false})",
                           kNothing = R"({"enum": ["", [], {}]})",
                           kNever = R"({"type": "null"})";
constexpr std::string_view kOfOthers = "not OpenAI's, as other servers have it",
                           kNoTools = "/v1/chat/completions has tools",
                           kNoReasoning = "the model does not reason aside",
                           kNoState =
                               "nothing is kept between requests, each brings "
                               "all of its messages";

constexpr std::string_view kFormSchema = R"({"anyOf": [
  {"type": "object", "required": ["type"], "properties":
    {"type": {"enum": ["text", "json_object"]}}},
  {"type": "object", "required": ["type", "json_schema"], "properties":
    {"type": {"const": "json_schema"}, "json_schema":
      {"type": "object", "required": ["schema"], "properties":
        {"schema": {"type": "object"}}}}}]})";
constexpr std::string_view kTextSchema = R"({"type": "object",
  "additionalProperties": {"type": "null"}, "properties": {
    "verbosity": {"enum": ["medium", null]}, "format": {"anyOf": [
    {"type": "null"},
    {"type": "object", "required": ["type"], "properties":
      {"type": {"enum": ["text", "json_object"]}}},
    {"type": "object", "required": ["type", "schema"], "properties":
      {"type": {"const": "json_schema"}, "schema": {"type": "object"}}}]}}})";

constexpr std::string_view kToolsSchema = R"({"type": "array", "maxItems": 128,
  "items": {"type": "object", "required": ["type", "function"],
    "additionalProperties": false, "properties": {
    "type": {"const": "function"},
    "function": {"type": "object", "required": ["name"],
      "additionalProperties": false, "properties": {
      "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
      "description": {"type": ["string", "null"]},
      "parameters": {"type": ["object", "null"]},
      "strict": {"type": ["boolean", "null"]}}}}}})";
constexpr std::string_view kToolChoiceSchema = R"({"anyOf": [
  {"enum": ["none", "auto", "required"]},
  {"type": "object", "required": ["type", "function"],
    "additionalProperties": false, "properties": {
    "type": {"const": "function"},
    "function": {"type": "object", "required": ["name"],
      "additionalProperties": false,
      "properties": {"name": {"type": "string"}}}}}]})";

constexpr Field kFields[] = {
    {"model", kAll, readModel, R"({"type": "string", "minLength": 1})", 0, 0,
     "the name of what is served"},
    {"prompt", kCompletions, readPrompt,
     R"({"anyOf": [{"type": "string"},
         {"type": "array", "minItems": 1, "maxItems": 128,
          "items": {"type": "string"}},
         {"type": "array", "minItems": 1,
          "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}},
         {"type": "array", "minItems": 1, "maxItems": 128,
          "items": {"type": "array", "items":
            {"type": "integer", "minimum": 0, "maximum": 2147483647}}}]})",
     0, 0, "a text, texts, tokens, or lists of tokens"},
    {"messages", kChat, readMessages,
     R"({"$ref": "#/components/schemas/Messages"})"},
    {"input", kResponses, readInput,
     R"({"anyOf": [{"type": "string"},
         {"$ref": "#/components/schemas/InputMessages"}]})",
     0, 0, "what a user says, or messages"},
    {"instructions", kResponses, readInstructions, kText, 0, 0,
     "a system message before all others"},
    {"max_tokens", kBoth, readMaxTokens, kWhole, 1, kMost},
    {"max_completion_tokens", kChat, readMaxTokens, kWhole, 1, kMost},
    {"max_output_tokens", kResponses, readMaxTokens, kWhole, 1, kMost},
    {"temperature", kAll, readOf<&SamplingOptions::temperature>, kNumber, 0, 2,
     "0: the likeliest token"},
    // Below this nothing but the likeliest token is left, as with it.
    {"top_p", kAll, readOf<&SamplingOptions::topP>, kNumber, 1e-6, 1},
    {"n", kBoth, readOf<&ApiRequest::n>, kWhole, 1, kMaxChoices},
    {"best_of", kCompletions, readBestOf, kWhole, 1, kMaxChoices,
     "the value of n"},
    {"stop", kAll, readStop,
     R"({"anyOf": [{"type": "string", "minLength": 1, "maxLength": 1024},
         {"type": "array", "maxItems": 16, "items":
          {"type": "string", "minLength": 1, "maxLength": 1024}}]})",
     0, 0, "the text ends before one of these"},
    {"seed", kAll, readSeed, kWhole, -0x1p63, 0x1p64},
    {"stream", kAll, readOf<&ApiRequest::stream>, kBoolean},
    {"stream_options", kBoth, readStreamOptions,
     R"({"type": "object", "additionalProperties": false,
         "properties": {"include_usage": {"type": "boolean"},
                        "include_obfuscation": {"const": false}}})"},
    {"stream_options", kResponses, readResponseStreamOptions,
     R"({"type": "object", "additionalProperties": false,
         "properties": {"include_obfuscation": {"const": false}}})"},
    {"presence_penalty", kAll, readOf<&SamplingOptions::presencePenalty>,
     kNumber, -2, 2},
    {"frequency_penalty", kAll, readOf<&SamplingOptions::frequencyPenalty>,
     kNumber, -2, 2},
    {"logit_bias", kBoth, readBias,
     R"({"type": "object", "maxProperties": 1024,
         "propertyNames": {"pattern": "^[0-9]{1,9}$"},
         "additionalProperties":
           {"type": "number", "minimum": -100, "maximum": 100}})",
     -100, 100},
    {"logprobs", kCompletions, readCompletionLogprobs, kWhole, 0, 20},
    {"logprobs", kChat, readChatLogprobs, kBoolean},
    {"top_logprobs", kChat, readTopLogprobs, kWhole, 0, 20,
     "needs logprobs: true"},
    {"top_k", kAll, readOf<&SamplingOptions::topK>, kWhole, 0, kMost,
     kOfOthers},
    {"min_p", kAll, readOf<&SamplingOptions::minP>, kNumber, 0, 1, kOfOthers},
    {"repetition_penalty", kAll, readOf<&SamplingOptions::repetitionPenalty>,
     kNumber, 0.01, 100, kOfOthers},
    {"ignore_eos", kAll, readOf<&ApiRequest::ignoreEnd>, kBoolean, 0, 0,
     kOfOthers},
    // Only about how OpenAI keeps, bills and routes.
    {"metadata", kAll, readMetadata,
     R"({"type": "object", "maxProperties": 16,
         "propertyNames": {"maxLength": 64},
         "additionalProperties": {"type": "string", "maxLength": 512}})"},
    {"user", kAll, ignoreText, kText},
    {"service_tier", kChat | kResponses, readServiceTier, kText, 0, 0,
     "there is one tier, which the answer calls default"},
    {"safety_identifier", kAll, ignoreText, kText},
    {"prompt_cache_key", kAll, ignoreText, kText},
    {"parallel_tool_calls", kChat, readOf<&ApiRequest::parallelCalls>, kBoolean,
     0, 0, "whether an answer may have several calls"},
    {"parallel_tool_calls", kResponses, ignoreBool, kBoolean, 0, 0, kNoTools},
    {"max_tool_calls", kResponses, ignoreWhole, kWhole, 0, kMost, kNoTools},
    {"response_format", kChat, readResponseFormat, kFormSchema, 0, 0,
     "a form that the answer must have"},
    {"text", kResponses, readTextFormat, kTextSchema, 0, 0,
     "with format, a form that the answer must have"},
    {"modalities", kChat, readModalities, R"({"const": ["text"]})"},
    {"truncation", kResponses, readTruncation, R"({"const": "disabled"})"},
    {"echo", kCompletions, readFalse, kFalse, 0, 0,
     "an answer begins behind the prompt"},
    {"store", kChat | kResponses, readFalse, kFalse, 0, 0, kNoState},
    {"background", kResponses, readFalse, kFalse, 0, 0, kNoState},
    {"suffix", kCompletions, readEmpty, kNothing, 0, 0,
     "the model continues texts and fills no gaps"},
    {"tools", kChat, readTools, kToolsSchema, 0, 0,
     "functions that the model may call, if its template knows of tools"},
    {"tool_choice", kChat, readToolChoice, kToolChoiceSchema},
    {"functions", kChat, readEmpty, kNothing, 0, 0, "use tools"},
    {"function_call", kChat, readNoToolChoice,
     R"({"enum": ["none", "auto", ""]})", 0, 0, "use tool_choice"},
    {"tools", kResponses, readEmpty, kNothing, 0, 0, kNoTools},
    {"tool_choice", kResponses, readNoToolChoice,
     R"({"enum": ["none", "auto", ""]})", 0, 0, kNoTools},
    {"include", kResponses, readInclude,
     R"({"type": "array", "items": {"enum": [
         "code_interpreter_call.outputs",
         "computer_call_output.output.image_url", "file_search_call.results",
         "message.input_image.image_url", "reasoning.encrypted_content",
         "web_search_call.action.sources"]}})",
     0, 0, "adds to items of a kind that no response has here"},
    {"top_logprobs", kResponses, readZero, R"({"const": 0})", 0, 0,
     "/v1/chat/completions has logprobs"},
    {"reasoning", kResponses, readReasoning,
     R"({"type": "object", "additionalProperties": {"type": "null"},
         "properties": {"effort": {"enum": ["none", "minimal", null]}}})",
     0, 0, kNoReasoning},
    {"reasoning_effort", kChat, readEffort, R"({"enum": ["none", "minimal"]})",
     0, 0, kNoReasoning},
    {"verbosity", kChat, readVerbosity, R"({"const": "medium"})"},
    {"prediction", kChat, readPrediction,
     R"({"type": "object", "required": ["type", "content"], "properties": {
         "type": {"const": "content"},
         "content": {"anyOf": [{"type": "string"}, {"type": "array", "items":
           {"type": "object", "required": ["type", "text"], "properties": {
             "type": {"const": "text"}, "text": {"type": "string"}}}}]}}})",
     0, 0, "a hint that would make the same answer faster, and is not used"},
    {"audio", kChat, refuseAny, kNever, 0, 0, "the model makes no sounds"},
    {"web_search_options", kChat, refuseAny, kNever, 0, 0,
     "the server asks nobody"},
    {"previous_response_id", kResponses, readEmpty, kNothing, 0, 0, kNoState},
    {"conversation", kResponses, readEmpty, kNothing, 0, 0, kNoState},
    {"prompt", kResponses, readEmpty, kNothing, 0, 0, kNoState},
};

} // namespace

std::span<const Field> apiFields() { return kFields; }

} // namespace tessera::serve
