// Logprobs as JSON that grows token by token: an answer of many tokens is never
// a tree of them.
#pragma once
#include "runtime/serve/Api.h"
#include "runtime/serve/Choice.h"

#include <array>

namespace tessera::serve {

/// Tokens whose logprobs an answer that is not a stream may have, every one of
/// the likeliest counted: about 20 MB of JSON.
inline constexpr int64_t kMaxLogprobs = 1 << 18;

class LogprobText {
public:
  void add(Endpoint endpoint, std::span<const ChoiceToken> tokens,
           const tokenizer::Tokenizer &tokenizer);
  /// The value of `logprobs`: an object as the endpoint has it.
  std::string json(Endpoint endpoint) const;

private:
  /// Elements behind commas: of a chat its tokens alone; of a completion
  /// tokens, their logprobs, the likeliest, and offsets in characters.
  std::array<std::string, 4> lists;
};

} // namespace tessera::serve
