// The prompts of reinforcement learning: lines of JSON with `prompt`, a text,
// or `messages`, a conversation for the model's chat template. Other members
// are for the reward.
#pragma once
#include "runtime/data/Json.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::rl {

struct Prompt {
  std::string where; ///< "FILE:LINE", for errors
  std::string line;  ///< as it is in the file, for the reward
  std::vector<int32_t> tokens;
};

/// What turns a prompt into tokens.
struct PromptEncoder {
  std::function<StatusOr<std::vector<int32_t>>(std::string_view text)> text;
  /// Empty: the model has no chat template.
  std::function<StatusOr<std::vector<int32_t>>(const JsonValue &messages)>
      messages;
};

/// Reads all prompts; at least one. Errors name the line: not a JSON object,
/// neither or both of the members, no token, or more than `mostTokens`.
StatusOr<std::vector<Prompt>> readPrompts(const std::string &file,
                                          const PromptEncoder &encoder,
                                          int64_t mostTokens);

/// The prompt of group `number`: all prompts in an order shuffled by the seed,
/// then all again in another order (Sample k = f(seed, k), so that a run that
/// goes on needs the number alone).
uint64_t promptOfGroup(uint64_t seed, uint64_t number, uint64_t prompts);

} // namespace tessera::rl
