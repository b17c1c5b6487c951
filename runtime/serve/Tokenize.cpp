#include "runtime/serve/Tokenize.h"
#include "runtime/serve/ApiFields.h"

#include <iterator>

#include <nlohmann/json.hpp>

namespace tessera::serve {

//===--- fields -----------------------------------------------------------===//

Problem readOnePrompt(const Field &field, const JsonValue &value,
                      ApiRequest &request) {
  std::string text;
  if (Problem found = readText(field.name, value, text))
    return found;
  request.prompts.emplace_back(std::move(text));
  return std::nullopt;
}

Problem readFraming(const Field &field, const JsonValue &value,
                    ApiRequest &request) {
  return readBool(field.name, value, request.isFramed.emplace());
}

Problem readTokenIds(const Field &field, const JsonValue &value,
                     ApiRequest &request) {
  if (!value.isArray())
    return problem(field.name, "{} must be a list of tokens", field.name);
  return readTokens(field.name, value.elements(),
                    request.prompts.emplace_back());
}

//===--- responses --------------------------------------------------------===//

std::vector<int32_t> promptTokens(const ApiRequest &request,
                                  tokenizer::Encoder &encoder) {
  const auto &text = std::get<std::string>(request.prompts.front());
  const std::vector<uint32_t> ids = request.isFramed.value_or(true)
                                        ? encoder.encodeFramed(text)
                                        : encoder.encode(text);
  return {ids.begin(), ids.end()};
}

// Written by hand: a prompt may have millions of tokens.
std::string tokenizeAnswer(const tokenizer::Tokenizer &tokenizer,
                           std::span<const int32_t> tokens, int64_t context,
                           bool hasStrings) {
  std::string out = fmt::format(
      R"({{"count":{},"max_model_len":{},"tokens":[{}],"token_strs":)",
      tokens.size(), context, fmt::join(tokens, ","));
  if (!hasStrings)
    return out + "null}";
  const char *separator = "[";
  for (int32_t token : tokens) {
    out += separator;
    out += nlohmann::json(tokenizer.written(uint32_t(token)))
               .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    separator = ",";
  }
  return out + (tokens.empty() ? "[]}" : "]}");
}

std::variant<std::string, ApiError>
detokenizeAnswer(const tokenizer::Tokenizer &tokenizer,
                 std::span<const int32_t> tokens) {
  std::size_t bytes = 0;
  for (int32_t token : tokens) {
    const tokenizer::TokenText &text = tokenizer.token(uint32_t(token));
    if (!text.present)
      return problem("tokens", "the tokenizer has no token {}", token);
    bytes += text.bytes.size();
  }
  if (bytes > kMaxDetokenized)
    return problem("tokens", "the text of the tokens has more than {} MiB",
                   kMaxDetokenized >> 20);
  const std::vector<uint32_t> ids(tokens.begin(), tokens.end());
  return nlohmann::json{{"prompt", tokenizer::decode(tokenizer, ids)}}.dump();
}

} // namespace tessera::serve
