// Requests that are answered by the tokenizer alone.
#include "runtime/serve/Service.h"
#include "runtime/serve/Tokenize.h"

#include <fmt/format.h>

namespace tessera::serve {

std::optional<ApiError> Service::tokenize(const ApiRequest &request,
                                          const Reply &reply) {
  if (auto error = checkTools(request))
    return error;
  std::vector<int32_t> tokens;
  if (!request.prompts.empty()) {
    tokens = promptTokens(request, encoder);
  } else {
    std::vector<Prompt> prompts;
    if (auto error = makePrompts(request, prompts))
      return error;
    tokens = std::move(prompts.front().tokens);
    if (request.isFramed.value_or(false)) {
      auto prefix = tokenizer.framePrefix(), suffix = tokenizer.frameSuffix();
      tokens.insert(tokens.begin(), prefix.begin(), prefix.end());
      tokens.insert(tokens.end(), suffix.begin(), suffix.end());
    }
  }
  sendJson(reply, tokenizeAnswer(tokenizer, tokens, context(),
                                 request.returnsStrings));
  return std::nullopt;
}

std::optional<ApiError> Service::countTokens(const ApiRequest &request,
                                             const Reply &reply) {
  if (auto error = checkTools(request))
    return error;
  std::vector<Prompt> prompts;
  if (auto error = makePrompts(request, prompts))
    return error;
  sendJson(reply, fmt::format(R"({{"input_tokens":{}}})",
                              prompts.front().tokens.size()));
  return std::nullopt;
}

std::optional<ApiError> Service::detokenize(const ApiRequest &request,
                                            const Reply &reply) {
  auto text = detokenizeAnswer(
      tokenizer, std::get<std::vector<int32_t>>(request.prompts.front()));
  if (const auto *error = std::get_if<ApiError>(&text))
    return *error;
  sendJson(reply, std::move(std::get<std::string>(text)));
  return std::nullopt;
}

} // namespace tessera::serve
