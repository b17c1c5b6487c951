#include "runtime/serve/Api.h"
#include "runtime/serve/ApiFields.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace tessera::serve {

bool generates(Endpoint endpoint) {
  return endpoint == Endpoint::completions || endpoint == Endpoint::chat ||
         endpoint == Endpoint::responses || endpoint == Endpoint::messages;
}

ErrorForm errorFormOf(std::string_view path) {
  return path == "/v1/messages" || path.starts_with("/v1/messages/")
             ? ErrorForm::messages
             : ErrorForm::openAi;
}

/// Whether there is something to answer.
static Problem checkInput(const ApiRequest &request) {
  std::string_view input = inputField(request.endpoint);
  const bool isEmpty = request.prompts.empty() && request.messages.empty();
  if (request.endpoint == Endpoint::tokenize) {
    if (isEmpty)
      return problem(input, "prompt or messages is missing");
    if (!request.prompts.empty() && !request.messages.empty())
      return problem(input, "leave out prompt or messages");
  } else if (isEmpty && request.endpoint != Endpoint::responses) {
    // OpenAI has it optional in responses, since a stored prompt may contain
    // it.
    return problem(input, "{} is missing", input);
  }
  return std::nullopt;
}

static Problem checkTogether(const ApiRequest &request) {
  if (Problem found = checkInput(request))
    return found;
  if (int64_t(request.prompts.size()) * request.n > kMaxChoices)
    return problem("n", "prompts times n must be at most {}", kMaxChoices);
  auto isText = [](const PromptInput &prompt) {
    return std::holds_alternative<std::string>(prompt);
  };
  if (!request.suffix.empty() && !std::ranges::all_of(request.prompts, isText))
    return problem("suffix", "suffix requires prompts that are strings");
  if (request.tools.empty() && request.toolUse == ToolUse::required)
    return request.usesFunctions
               ? problem("function_call", "function_call requires functions")
               : problem("tool_choice", "tool_choice requires tools");
  if (request.background && !request.store)
    return problem("background", "background requires store: true");
  if (request.mayCall() && request.form) {
    return problem(
        request.formField,
        "structured output cannot contain tool calls: leave out {} or tools, "
        "or set tool_choice: none",
        request.formField);
  }
  return std::nullopt;
}

std::string_view inputField(Endpoint endpoint) {
  switch (endpoint) {
  case Endpoint::completions:
  case Endpoint::tokenize:
    return "prompt";
  case Endpoint::detokenize:
    return "tokens";
  case Endpoint::chat:
  case Endpoint::messages:
  case Endpoint::countTokens:
    return "messages";
  case Endpoint::responses:
  case Endpoint::embeddings:
    return "input";
  case Endpoint::rerank:
    return "documents";
  case Endpoint::score:
    return "text_2";
  }
  return "input";
}

/// {"type": "error", "error": {type, message}}.
static std::string messagesError(const ApiError &error) {
  std::string_view type = error.status == 401   ? "authentication_error"
                          : error.status == 403 ? "permission_error"
                          : error.status == 404 ? "not_found_error"
                          : error.status == 413 ? "request_too_large"
                          : error.status == 429 ? "rate_limit_error"
                          : error.status == 503 ? "overloaded_error"
                          : error.status == 504 ? "timeout_error"
                          : error.status >= 500 ? "api_error"
                                                : "invalid_request_error";
  nlohmann::ordered_json json = {
      {"type", "error"},
      {"error", {{"type", type}, {"message", error.message}}}};
  return json.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

std::string ApiError::json(ErrorForm form) const {
  if (form == ErrorForm::messages)
    return messagesError(*this);
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
  // Messages may quote input of the client.
  return nlohmann::json{{"error", error}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::variant<JsonValue, ApiError> parseBody(std::string_view body) {
  StatusOr<JsonValue> root = JsonValue::parse(body, "body");
  if (!root.ok())
    return ApiError{400, root.message(), "", "invalid_json"};
  if (!root->isObject())
    return ApiError{400, "the body must be a JSON object", "", "invalid_json"};
  return root.take();
}

std::variant<ApiRequest, ApiError>
parseApiRequest(std::string_view body, Endpoint endpoint,
                const SamplingOptions &usual) {
  auto root = parseBody(body);
  if (const auto *error = std::get_if<ApiError>(&root))
    return *error;
  ApiRequest request;
  request.endpoint = endpoint;
  request.sampling = usual;
  request.store = endpoint == Endpoint::responses; // OpenAI's default
  if (Problem found =
          readFields(apiFields(), endpoint, std::get<JsonValue>(root), request))
    return *found;
  if (Problem found = checkTogether(request))
    return *found;
  if (request.instructions)
    request.messages.insert(request.messages.begin(),
                            {"system", *request.instructions});
  return request;
}

} // namespace tessera::serve
