// The tokenizer and the chat template of a model, as rollouts need them.
#pragma once
#include "runtime/rl/PromptFile.h"
#include "runtime/serve/ModelChat.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tessera::rl {

class RolloutTokenizer {
public:
  /// What comes below requires it.
  Status read(const ModelFiles &files);
  /// Of prompts; it must not outlive this.
  PromptEncoder promptEncoder();
  /// Without special tokens.
  std::string decode(std::span<const int32_t> tokens) const;
  /// The tokens that end a completion.
  std::vector<int32_t> stopTokens() const;

private:
  StatusOr<std::vector<int32_t>> encodeText(std::string_view text);
  StatusOr<std::vector<int32_t>> encodeMessages(const JsonValue &messages);

  std::optional<tokenizer::Tokenizer> tokenizer;
  std::optional<tokenizer::Encoder> encoder;
  std::unique_ptr<serve::ChatRenderer> chat;
  std::vector<int32_t> ends;
};

} // namespace tessera::rl
