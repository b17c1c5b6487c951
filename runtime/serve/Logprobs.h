// Logprobs as JSON that grows token by token, without a tree in memory.
#pragma once
#include "runtime/serve/Api.h"
#include "runtime/serve/Choice.h"

#include <array>

namespace tessera::serve {

/// Most logprobs, counting each of the likeliest, of a response without
/// streaming: about 20 MB of JSON.
inline constexpr int64_t kMaxLogprobs = 1 << 18;

class LogprobText {
public:
  void add(Endpoint endpoint, std::span<const ChoiceToken> tokens,
           const tokenizer::Tokenizer &tokenizer);
  /// The value of `logprobs`, in the endpoint's format.
  std::string json(Endpoint endpoint) const;

private:
  /// Comma-separated elements: for chats tokens; for completions tokens, their
  /// logprobs, the likeliest tokens, and offsets in characters.
  std::array<std::string, 4> lists;
};

} // namespace tessera::serve
