// POST /tokenize and /detokenize, with the fields and responses that vLLM has.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/serve/Api.h"

#include <span>

namespace tessera::serve {

/// The tokens of the prompt of a request, which has one.
std::vector<int32_t> promptTokens(const ApiRequest &request,
                                  tokenizer::Encoder &encoder);

/// The response of /tokenize; `context` in tokens.
std::string tokenizeAnswer(const tokenizer::Tokenizer &tokenizer,
                           std::span<const int32_t> tokens, int64_t context,
                           bool hasStrings);

/// The limit of a text that /detokenize returns.
inline constexpr std::size_t kMaxDetokenized = std::size_t(16) << 20;

/// The response of /detokenize, with the text of special tokens.
std::variant<std::string, ApiError>
detokenizeAnswer(const tokenizer::Tokenizer &tokenizer,
                 std::span<const int32_t> tokens);

} // namespace tessera::serve
