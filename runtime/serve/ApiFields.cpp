#include "runtime/serve/ApiFields.h"

namespace tessera::serve {
namespace {

/// Reads a number into a member of the request: readOf<&ApiRequest::n>.
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
constexpr unsigned kTemplated = kChat | kTokenize;
constexpr unsigned kOfMessages = kMessages | kCountTokens,
                   kGenerating = kAll | kMessages;
constexpr std::string_view kText = R"({"type": "string"})",
                           kWhole = R"({"type": "integer"})",
                           kNumber = R"({"type": "number"})",
                           kBoolean = R"({"type": "boolean"})",
                           kNothing = R"({"enum": ["", [], {}]})",
                           kNever = R"({"type": "null"})";
constexpr std::string_view
    kOfOthers = "an extension, as in other servers",
    kEffort = "a variable of the chat template, if it has it",
    kNoTokens = "0: the prompt is computed, and nothing generated";

constexpr std::string_view kFormSchema = R"({"anyOf": [
  {"type": "object", "required": ["type"], "properties":
    {"type": {"enum": ["text", "json_object"]}}},
  {"type": "object", "required": ["type", "json_schema"], "properties":
    {"type": {"const": "json_schema"}, "json_schema":
      {"type": "object", "required": ["schema"], "properties":
        {"schema": {"type": "object"}}}}}]})";
constexpr std::string_view kTextSchema = R"({"type": "object",
  "additionalProperties": {"type": "null"}, "properties": {
    "verbosity": {"enum": ["low", "medium", "high", null]}, "format": {"anyOf": [
    {"type": "null"},
    {"type": "object", "required": ["type"], "properties":
      {"type": {"enum": ["text", "json_object"]}}},
    {"type": "object", "required": ["type", "schema"], "properties":
      {"type": {"const": "json_schema"}, "schema": {"type": "object"}}}]}}})";

// A schema as an object or as a string.
constexpr std::string_view kSchemaSchema =
                               R"({"anyOf": [{"type": "object"},
  {"type": "string"}]})",
                           kChoiceSchema = R"({"type": "array", "minItems": 1,
  "maxItems": 20000, "items": {"type": "string"}})";
constexpr std::string_view kStructuredSchema = R"({"type": "object",
  "additionalProperties": {"type": "null"}, "properties": {
    "json": {"type": ["object", "string", "null"]},
    "json_object": {"enum": [true, null]},
    "regex": {"type": ["string", "null"]},
    "choice": {"type": ["array", "null"], "minItems": 1, "maxItems": 20000,
      "items": {"type": "string"}},
    "grammar": {"type": ["string", "null"]},
    "disable_fallback": {"enum": [false, null]},
    "disable_any_whitespace": {"enum": [false, null]},
    "disable_additional_properties": {"enum": [false, null]}}, "anyOf": [
    {"type": "object", "required": ["json"],
      "properties": {"json": {"type": ["object", "string"]}}},
    {"type": "object", "required": ["json_object"],
      "properties": {"json_object": {"const": true}}},
    {"type": "object", "required": ["regex"],
      "properties": {"regex": {"type": "string"}}},
    {"type": "object", "required": ["choice"],
      "properties": {"choice": {"type": "array", "items": {}}}},
    {"type": "object", "required": ["grammar"],
      "properties": {"grammar": {"type": "string"}}}]})";
constexpr std::string_view kGuided = "a deprecated name of structured_outputs",
                           kOtherGuided =
                               "another server's name of structured_outputs";

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
constexpr std::string_view kResponseToolsSchema = R"({"type": "array",
  "maxItems": 128, "items": {"type": "object", "required": ["type", "name"],
    "additionalProperties": false, "properties": {
      "type": {"const": "function"},
      "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
      "description": {"type": ["string", "null"]},
      "parameters": {"type": ["object", "null"]},
      "strict": {"type": ["boolean", "null"]}}}})";
constexpr std::string_view kFunctionsSchema = R"({"type": "array",
  "maxItems": 128, "items": {"type": "object", "required": ["name"],
    "additionalProperties": false, "properties": {
      "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
      "description": {"type": ["string", "null"]},
      "parameters": {"type": ["object", "null"]}}}})";
constexpr std::string_view kToolChoiceSchema = R"({"anyOf": [
  {"enum": ["none", "auto", "required"]},
  {"type": "object", "required": ["type", "function"],
    "additionalProperties": false, "properties": {
    "type": {"const": "function"},
    "function": {"type": "object", "required": ["name"],
      "additionalProperties": false,
      "properties": {"name": {"type": "string"}}}}}]})";

// Anthropic's.
constexpr std::string_view kCustomToolsSchema = R"({"type": "array",
  "maxItems": 128, "items": {"type": "object",
    "required": ["name", "input_schema"], "additionalProperties": {"type":
    "null"}, "properties": {
      "type": {"enum": ["custom", null]},
      "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
      "description": {"type": ["string", "null"]},
      "input_schema": {"type": "object", "properties":
        {"type": {"const": "object"}}},
      "strict": {"type": ["boolean", "null"]},
      "cache_control": {"anyOf": [{"type": "null"},
        {"$ref": "#/components/schemas/CacheControl"}]}}}})";
constexpr std::string_view kTypedToolChoiceSchema = R"({"anyOf": [
  {"type": "object", "required": ["type"],
    "additionalProperties": {"type": "null"}, "properties": {
      "type": {"enum": ["auto", "any", "none"]},
      "disable_parallel_tool_use": {"type": ["boolean", "null"]}}},
  {"type": "object", "required": ["type", "name"],
    "additionalProperties": {"type": "null"}, "properties": {
      "type": {"const": "tool"}, "name": {"type": "string"},
      "disable_parallel_tool_use": {"type": ["boolean", "null"]}}}]})";
constexpr std::string_view kThinkingSchema = R"({"anyOf": [
  {"type": "object", "required": ["type"],
    "additionalProperties": {"type": "null"}, "properties": {
      "type": {"enum": ["disabled", "adaptive"]}}},
  {"type": "object", "required": ["type"],
    "additionalProperties": {"type": "null"}, "properties": {
      "type": {"const": "enabled"},
      "budget_tokens": {"anyOf": [{"type": "null"},
        {"type": "integer", "minimum": 1024}]}}}]})";

constexpr Field kFields[] = {
    // Read before what is then kept.
    {"store", kChat | kResponses, readOf<&ApiRequest::store>, kBoolean, 0, 0,
     "whether the response can be retrieved later; default of responses: true"},
    {"model", kAll | kTokenize | kDetokenize | kOfMessages, readModel,
     R"({"type": "string", "minLength": 1})", 0, 0,
     "a name of the served model or of an adapter; default: the model"},
    {"prompt", kCompletions, readPrompt,
     R"({"anyOf": [{"type": "string"},
         {"type": "array", "minItems": 1, "maxItems": 128,
          "items": {"type": "string"}},
         {"type": "array", "minItems": 1,
          "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}},
         {"type": "array", "minItems": 1, "maxItems": 128,
          "items": {"type": "array", "items":
            {"type": "integer", "minimum": 0, "maximum": 2147483647}}}]})",
     0, 0, "a string, strings, tokens, or lists of tokens"},
    {"prompt", kTokenize, readOnePrompt, kText, 0, 0,
     "a string; or else messages"},
    {"tokens", kDetokenize, readTokenIds,
     R"({"type": "array", "items":
         {"type": "integer", "minimum": 0, "maximum": 2147483647}})"},
    {"messages", kTemplated, readMessages,
     R"({"$ref": "#/components/schemas/Messages"})"},
    {"messages", kOfMessages, readTurns,
     R"({"$ref": "#/components/schemas/Turns"})"},
    {"system", kOfMessages, readSystem,
     R"({"$ref": "#/components/schemas/TextBlocks"})", 0, 0,
     "the system prompt"},
    {"add_special_tokens", kTokenize, readFraming, kBoolean, 0, 0,
     "whether the tokenizer adds what begins and ends a text; default: to a "
     "prompt, and not to messages, whose template does"},
    {"return_token_strs", kTokenize, readOf<&ApiRequest::returnsStrings>,
     kBoolean, 0, 0, "token_strs are the tokens as the tokenizer writes them"},
    {"input", kResponses, readInput,
     R"({"anyOf": [{"type": "string"},
         {"$ref": "#/components/schemas/InputMessages"}]})",
     0, 0, "a user message, or a list of items; default: the model begins"},
    {"instructions", kResponses, readInstructions, kText, 0, 0,
     "the system prompt"},
    {"max_tokens", kBoth | kMessages, readMaxTokens, kWhole, 0, kMost,
     kNoTokens},
    {"max_completion_tokens", kChat, readMaxTokens, kWhole, 0, kMost,
     kNoTokens},
    {"max_output_tokens", kResponses, readMaxTokens, kWhole, 0, kMost,
     kNoTokens},
    {"temperature", kGenerating, readOf<&SamplingOptions::temperature>, kNumber,
     0, 2, "0: the likeliest token"},
    // Below this only the likeliest token is left, as with 0.
    {"top_p", kGenerating, readOf<&SamplingOptions::topP>, kNumber, 1e-6, 1},
    {"n", kBoth, readOf<&ApiRequest::n>, kWhole, 1, kMaxChoices},
    {"best_of", kCompletions, readBestOf, kWhole, 0, kMaxChoices,
     "0, or the value of n"},
    {"stop", kAll, readStop,
     R"({"anyOf": [{"type": "string", "minLength": 1, "maxLength": 1024},
         {"type": "array", "maxItems": 16, "items":
          {"type": "string", "minLength": 1, "maxLength": 1024}}]})",
     0, 0, "stop strings: the output ends before one of these"},
    {"seed", kGenerating, readSeed, kWhole, -0x1p63, 0x1p64},
    {"stream", kGenerating, readOf<&ApiRequest::stream>, kBoolean},
    {"stream_options", kBoth, readStreamOptions,
     R"({"type": "object", "additionalProperties": false,
         "properties": {"include_usage": {"type": "boolean"},
                        "include_obfuscation": {"type": "boolean"}}})"},
    {"stream_options", kResponses, readResponseStreamOptions,
     R"({"type": "object", "additionalProperties": false,
         "properties": {"include_obfuscation": {"type": "boolean"}}})"},
    {"presence_penalty", kAll, readOf<&SamplingOptions::presencePenalty>,
     kNumber, -2, 2},
    {"frequency_penalty", kAll, readOf<&SamplingOptions::frequencyPenalty>,
     kNumber, -2, 2},
    {"logit_bias", kBoth, readBias,
     R"({"type": "object", "maxProperties": 1024,
         "patternProperties": {"^[0-9]{1,9}$":
           {"type": "number", "minimum": -100, "maximum": 100}},
         "additionalProperties": {"const": 0}})",
     -100, 100},
    {"logprobs", kCompletions, readCompletionLogprobs, kWhole, 0, 20},
    {"logprobs", kChat, readChatLogprobs, kBoolean},
    {"top_logprobs", kChat, readTopLogprobs, kWhole, 0, 20,
     "requires logprobs: true"},
    {"top_k", kGenerating, readOf<&SamplingOptions::topK>, kWhole, 0, kMost,
     kOfOthers},
    {"min_p", kGenerating, readOf<&SamplingOptions::minP>, kNumber, 0, 1,
     kOfOthers},
    {"repetition_penalty", kGenerating,
     readOf<&SamplingOptions::repetitionPenalty>, kNumber, 0.01, 100,
     kOfOthers},
    {"ignore_eos", kGenerating, readOf<&ApiRequest::ignoreEnd>, kBoolean, 0, 0,
     kOfOthers},
    {"priority", kAll, readOf<&ApiRequest::priority>, kWhole, -1000, 1000,
     "lower runs first"},
    // Fields about billing and routing at OpenAI, which only stored answers
    // repeat.
    {"metadata", kAll, readMetadata,
     R"({"type": "object", "maxProperties": 16,
         "propertyNames": {"maxLength": 64},
         "additionalProperties": {"type": "string", "maxLength": 512}})"},
    {"user", kAll, ignoreText, kText},
    {"service_tier", kChat | kResponses, readServiceTier, kText, 0, 0,
     "there is one tier; the response calls it default"},
    {"safety_identifier", kAll, ignoreText, kText},
    {"prompt_cache_key", kAll, ignoreText, kText},
    {"parallel_tool_calls", kChat | kResponses,
     readOf<&ApiRequest::parallelCalls>, kBoolean, 0, 0,
     "whether a response may have several tool calls"},
    {"max_tool_calls", kResponses, ignoreWhole, kWhole, 0, kMost,
     "only for tools that the server runs; there are none"},
    {"response_format", kChat, readResponseFormat, kFormSchema, 0, 0,
     "structured output"},
    {"text", kResponses, readTextFormat, kTextSchema, 0, 0,
     "with format: structured output"},
    {"structured_outputs", kAll, readStructuredOutputs, kStructuredSchema, 0, 0,
     "structured output, by one of the names of vLLM"},
    {"guided_json", kAll, readGuided, kSchemaSchema, 0, 0, kGuided},
    {"guided_regex", kAll, readGuided, kText, 0, 0, kGuided},
    {"guided_choice", kAll, readGuided, kChoiceSchema, 0, 0, kGuided},
    {"guided_grammar", kAll, readGuided, kText, 0, 0, kGuided},
    {"regex", kAll, readGuided, kText, 0, 0, kOtherGuided},
    {"ebnf", kAll, readGuided, kText, 0, 0, kOtherGuided},
    {"grammar", kAll, readGuided, kText, 0, 0, kOtherGuided},
    {"modalities", kChat, readModalities, R"({"const": ["text"]})"},
    {"truncation", kResponses, readTruncation,
     R"({"enum": ["auto", "disabled"]})", 0, 0,
     "auto: drops the oldest messages if they do not fit"},
    {"echo", kCompletions, readOf<&ApiRequest::echo>, kBoolean, 0, 0,
     "the output begins with the prompt; with logprobs, also its logprobs"},
    {"return_token_ids", kCompletions | kChat,
     readOf<&ApiRequest::returnsTokens>, kBoolean, 0, 0,
     "choices have token_ids, those of special tokens too, and without "
     "streaming prompt_token_ids"},
    {"background", kResponses, readOf<&ApiRequest::background>, kBoolean, 0, 0,
     "returns at once; the response is retrieved later; requires store"},
    {"suffix", kCompletions, readSuffix, kText, 0, 0,
     "the text after the gap to fill in, if the model supports it"},
    {"tools", kTemplated, readTools, kToolsSchema, 0, 0,
     "functions that the model may call, if its chat template supports tools"},
    {"tool_choice", kChat, readToolChoice, kToolChoiceSchema},
    {"functions", kChat, readFunctions, kFunctionsSchema, 0, 0,
     "the deprecated name of tools"},
    {"function_call", kChat, readFunctionCall,
     R"({"anyOf": [{"enum": ["none", "auto"]},
         {"type": "object", "required": ["name"],
          "additionalProperties": false,
          "properties": {"name": {"type": "string"}}}]})",
     0, 0, "the deprecated name of tool_choice"},
    {"tools", kResponses, readResponseTools, kResponseToolsSchema, 0, 0,
     "functions that the model may call, if its chat template supports tools"},
    {"tool_choice", kResponses, readToolChoice,
     R"({"anyOf": [{"enum": ["none", "auto", "required"]},
         {"type": "object", "required": ["type", "name"],
          "additionalProperties": false, "properties": {
            "type": {"const": "function"}, "name": {"type": "string"}}}]})"},
    {"chat_template_kwargs", kTemplated | kOfMessages, readTemplateVariables,
     R"({"type": "object", "properties": {"messages": false, "tools": false,
         "add_generation_prompt": false}})",
     0, 0, "variables of the model's chat template, as in vLLM"},
    {"add_generation_prompt", kTemplated, readGenerationPrompt, kBoolean, 0, 0,
     "false: the prompt ends with the last message, without a generation "
     "prompt"},
    {"continue_final_message", kTemplated, readFalse, R"({"const": false})", 0,
     0, "a response is a new message; /v1/completions continues a string"},
    {"tools", kOfMessages, readCustomTools, kCustomToolsSchema, 0, 0,
     "functions that the model may call, if its chat template supports tools"},
    {"tool_choice", kOfMessages, readTypedToolChoice, kTypedToolChoiceSchema},
    {"stop_sequences", kMessages, readStopSequences,
     R"({"type": "array", "maxItems": 16, "items":
          {"type": "string", "minLength": 1, "maxLength": 1024}})",
     0, 0, "stop strings: the output ends before one of these"},
    {"thinking", kOfMessages, readThinking, kThinkingSchema, 0, 0,
     "sets variables of the chat template that turn reasoning on or off"},
    {"cache_control", kOfMessages, readCacheControl,
     R"({"$ref": "#/components/schemas/CacheControl"})", 0, 0,
     "every prefix is cached"},
    {"metadata", kMessages, readCaller,
     R"({"type": "object", "additionalProperties": {"type": "null"},
         "properties": {"user_id": {"type": ["string", "null"]}}})"},
    {"service_tier", kMessages, readMessagesTier,
     R"({"enum": ["auto", "standard_only"]})", 0, 0, "there is one tier"},
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
         "properties": {"effort": {"enum":
             ["none", "minimal", "low", "medium", "high", null]},
           "summary": {"enum": ["auto", "concise", "detailed", null]},
           "generate_summary":
             {"enum": ["auto", "concise", "detailed", null]}}})",
     0, 0, kEffort},
    {"reasoning_effort", kChat, readEffort,
     R"({"enum": ["none", "minimal", "low", "medium", "high"]})", 0, 0,
     kEffort},
    {"verbosity", kChat, readVerbosity,
     R"({"enum": ["low", "medium", "high"]})", 0, 0,
     "a hint that no model here was taught"},
    {"prediction", kChat, readPrediction,
     R"({"type": "object", "required": ["type", "content"], "properties": {
         "type": {"const": "content"},
         "content": {"anyOf": [{"type": "string"}, {"type": "array", "items":
           {"type": "object", "required": ["type", "text"], "properties": {
             "type": {"const": "text"}, "text": {"type": "string"}}}}]}}})",
     0, 0, "a hint that would make the same answer faster, and is not used"},
    {"audio", kChat, readAudio, R"({"type": "object"})", 0, 0,
     "settings of audio output, which is not supported"},
    {"web_search_options", kChat, refuseAny, kNever, 0, 0,
     "the server does not search the web"},
    {"previous_response_id", kResponses, readPrevious,
     R"({"type": "string", "minLength": 1})", 0, 0,
     "of a stored response, whose input and output come before"},
    {"conversation", kResponses, readEmpty, kNothing, 0, 0,
     "use previous_response_id"},
    {"prompt", kResponses, readEmpty, kNothing, 0, 0,
     "the server keeps no prompts"},
};

} // namespace

std::span<const Field> apiFields() { return kFields; }

} // namespace tessera::serve
